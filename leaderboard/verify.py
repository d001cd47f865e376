"""Recompute every number of a submission from its conversations.

What the server does on arrival is exactly this; anybody can do it before. It shows that the numbers
follow from the conversations. It cannot show which model wrote them.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import mas_envs
from benchmarks.metrics import summary
from benchmarks.suites import check_blind, suites
from leaderboard.archive import LIMITS, Archive, Limits
from leaderboard.findings import Check, Findings
from leaderboard.manifest import MANIFEST, PROMPTS, Manifest, Score, decode_manifest
from leaderboard.questions import Questions
from leaderboard.replay import computed_tools, replayed
from mas_envs.episodes.schema import Episode, ToolResult, decode
from mas_envs.errors import BadFile, UserError
from mas_envs.registration import EnvSpec
from mas_envs.workflow import WorkflowEnv


class Verification(NamedTuple):
    """What `verify` found."""

    manifest: Manifest
    checks: list[Check]

    @property
    def passed(self) -> bool:
        """No check failed."""
        return all(check.result != "fail" for check in self.checks)


def verify(path: Path, data: Path | None = None, limits: Limits = LIMITS) -> Verification:
    """All checks of a submission; `data` is a local copy of a suite that is not embedded.

    Memory does not grow with the number of episodes' texts. Raises `BadFile` or `UserError` for
    input that is no submission at all or unsafe to read.
    """
    with Archive(path) as archive:
        manifest = decode_manifest(archive.read(MANIFEST), path)
        findings = Findings()
        _check_members(archive, manifest, findings)
        questions = Questions(manifest, data)
        env = _environment(archive, manifest, findings)
        seen = _Seen()
        ours = _recomputed(archive.lines(limits), manifest, questions, env, findings, seen)
        try:
            found = summary(ours, manifest.k)
        except BadFile:  # the archive is damaged or unsafe
            raise
        except UserError as error:
            found = {"problem": str(error)}
        _check_samples(manifest, questions, seen, findings)
        questions.check(manifest, findings)
        _check_scores(manifest, found, findings)
        if set(seen.models) != set(manifest.models) or any(
            seen.models[role] != set(names) for role, names in manifest.models.items()
        ):
            spoke = {role: sorted(names) for role, names in seen.models.items()}
            findings.add("settings", f"declared models {manifest.models}, found {spoke}")
        _check_tools(manifest, seen, findings)
        if seen.repeats and manifest.sampling.temperature > 0:
            findings.warnings["repeats"] = (
                f"{seen.repeats} of {seen.count} samples repeat another one of their "
                "question word for word"
            )
    return Verification(manifest, findings.checks())


def _check_members(archive: Archive, manifest: Manifest, findings: Findings) -> None:
    there = set(archive.names) - {MANIFEST}
    if there != set(manifest.members):
        findings.add("members", f"declared {sorted(manifest.members)}, found {sorted(there)}")
    for name in sorted(there & set(manifest.members)):
        sha256, size = archive.digest(name)
        if (sha256, size) != (manifest.members[name].sha256, manifest.members[name].bytes):
            findings.add("members", f"{name} is not the file that was packed ({sha256[:12]}…)")


def _environment(archive: Archive, manifest: Manifest, findings: Findings) -> WorkflowEnv | None:
    """The declared environment, made from our registry; None if there is none like it.

    Nothing of the submission is imported: its entry point is compared, never followed.
    """
    try:
        declared = EnvSpec.from_json(msgspec.json.encode(manifest.env).decode())
        ours = mas_envs.spec(declared.id)
        if ours.entry_point != declared.entry_point:
            raise UserError(f"{declared.id} is {ours.entry_point}, not {declared.entry_point}")
        kwargs = {key: value for key, value in declared.kwargs.items() if key != "tasks"}
        _check_harmless(kwargs)
        _check_grading(kwargs, manifest.suite.name)
        with tempfile.TemporaryDirectory() as folder:
            if str(kwargs.get("prompts", "")).endswith(".toml"):
                if PROMPTS not in archive.names:
                    raise UserError(f"prompts {kwargs['prompts']!r} are not in the submission")
                # The set's id may depend on the file's name; a folder in it is dropped.
                prompts = Path(folder) / Path(kwargs["prompts"]).name
                prompts.write_bytes(archive.read(PROMPTS))
                kwargs["prompts"] = str(prompts)
            env = mas_envs.make(declared.id, **kwargs)
            check_blind(env)
    except Exception as error:  # whatever a constructor does with arguments nobody vouches for
        findings.add("settings", f"the environment cannot be made: {error}")
        return None
    if env.prompts_id != manifest.prompts:
        findings.add("settings", f"prompts are {env.prompts_id}, declared {manifest.prompts}")
    env.spec = declared
    return env


def _check_grading(kwargs: dict[str, Any], name: str) -> None:
    """Answers are held to what the suite calls equal, not to the submission's own rules.

    `compat` brings its own, published ones. Raises `UserError`.
    """
    known = suites().get(name)
    given, wanted = kwargs.get("grading"), known.env.args.get("grading") if known else None
    if given is not None and given != wanted:
        held = "the suite's default" if wanted is None else repr(wanted)
        raise UserError(f"grading is {given!r:.80}; answers to {name} are graded by {held}")


_SHIPPED = re.compile(r"(\w+=)?[\w-]+(,\w+=[\w-]+)*")


def _check_harmless(kwargs: dict[str, Any]) -> None:
    """Arguments may name no code and no file of this machine. Raises `UserError`.

    Sets `retriever` aside: what it found is believed, or searched with the embedded one.
    """
    kwargs.pop("retriever", None)
    for role, hook in dict(kwargs.get("shaping") or {}).items():
        if not str(hook).startswith("mas_envs.shaping:"):
            raise UserError(f"shaping of {role!r} is {hook!r}; a submission is replayed with "
                            "hooks of mas_envs.shaping only")  # fmt: skip
    prompts = kwargs.get("prompts")
    if isinstance(prompts, dict):
        prompts = ",".join(f"{agent}={chosen}" for agent, chosen in prompts.items())
    own = isinstance(prompts, str) and prompts.endswith(".toml") and "=" not in prompts
    if prompts is not None and not own and not _SHIPPED.fullmatch(str(prompts)):
        raise UserError(f"prompts {prompts!r}; submit one TOML file (a table [solver_1] "
                        "is that agent's own), or name sets that are shipped")  # fmt: skip


class _Seen:
    """What has to be remembered of the episodes read so far."""

    def __init__(self) -> None:
        self.samples: dict[str, set[int]] = defaultdict(set)
        self.models: dict[str, set[str]] = defaultdict(set)
        self.texts: dict[str, set[bytes]] = defaultdict(set)
        self.tools: Counter[str] = Counter()
        self.count = self.repeats = 0


def _recomputed(
    lines: Iterable[bytes],
    manifest: Manifest,
    questions: Questions,
    env: WorkflowEnv | None,
    findings: Findings,
    seen: _Seen,
) -> Iterator[Episode]:
    """The episodes as we compute them; all that is wrong with the stored ones goes to findings."""
    for number, line in enumerate(lines, 1):
        if number > manifest.suite.rows * manifest.k:
            findings.add("samples", f"more than {manifest.suite.rows} × {manifest.k} episodes")
            return
        where = f"line {number}"
        try:
            stored = decode(line)
        except (UserError, RecursionError) as error:
            findings.add("schema", f"{where}: {str(error) or 'nested too deeply'}")
            continue
        if stored.status != "done" or not 0 <= stored.sample < manifest.k:
            findings.add("samples", f"{where}: {stored.status}, sample {stored.sample}")
            continue
        where += f" (task {stored.task:.16}, sample {stored.sample})"
        if stored.sample in seen.samples[stored.task]:
            findings.add("samples", f"{where}: twice")
            continue
        place = questions.find(stored)
        if place is None:
            findings.add("samples", f"{where}: not a question of {manifest.suite.name}")
            continue
        _remember(seen, stored)
        if env is None:
            continue

        def report(check: str, problem: str, where: str = where) -> None:
            findings.add(check, f"{where}: {problem}")

        group, task = place
        ours = replayed(env, manifest, task, group, stored, report)
        if ours is not None:
            yield ours


def _remember(seen: _Seen, stored: Episode) -> None:
    seen.count += 1
    seen.samples[stored.task].add(stored.sample)
    for turn in stored.turns:
        seen.models[turn.role].add(turn.model)
    seen.tools.update(event.tool for event in stored.events if isinstance(event, ToolResult))
    texts = blake2b("\0".join(turn.text for turn in stored.turns).encode(), digest_size=16).digest()
    seen.repeats += texts in seen.texts[stored.task]
    seen.texts[stored.task].add(texts)


def _check_samples(
    manifest: Manifest, questions: Questions, seen: _Seen, findings: Findings
) -> None:
    wanted = questions.tasks
    if missing := manifest.suite.rows - len(wanted):
        findings.add("samples", f"{missing} of {manifest.suite.rows} questions have no sample")
    for task in sorted(wanted):
        if len(seen.samples[task]) != manifest.k:
            found = len(seen.samples[task])
            findings.add("samples", f"task {task} has {found} of {manifest.k} samples")


def _check_tools(manifest: Manifest, seen: _Seen, findings: Findings) -> None:
    """Say which tool results were believed, not computed again."""
    believed = {name: n for name, n in seen.tools.items() if name not in computed_tools(manifest)}
    if believed:
        counts = ", ".join(f"{n} of {name!r}" for name, n in sorted(believed.items()))
        source = manifest.env.get("kwargs", {}).get("retriever")
        where = f" (retriever {source!r:.80})" if "search" in believed else ""
        findings.unchecked["tools"] = f"stored results were believed: {counts}{where}"


def _check_scores(manifest: Manifest, found: dict[str, object], findings: Findings) -> None:
    if found.get("problem"):
        findings.add("scores", f"cannot be recomputed: {found['problem']}")
        return
    ours = {name: msgspec.convert(found[name], Score) for name in found if "@" in name}
    if set(ours) != set(manifest.scores):
        findings.add("scores", f"declared {sorted(manifest.scores)}, expected {sorted(ours)}")
    for name in sorted(set(ours) & set(manifest.scores)):
        for key, value in msgspec.structs.asdict(ours[name]).items():
            declared = getattr(manifest.scores[name], key)
            if not abs(declared - value) < 1e-6:
                findings.add("scores", f"{name} {key} declared {declared:.10g}, is {value:.10g}")
    findings.remarks["scores"] = ", ".join(f"{name} {s.value:.1f} %" for name, s in ours.items())
