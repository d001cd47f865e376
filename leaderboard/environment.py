"""The environment that a submission declares, made from our own registry.

Nothing of the submission is imported: its entry point is compared, never followed, and its
arguments may name no code and no file of this machine.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

import mas_envs
from benchmarks.prompt_copies import copied_prompts, sets_of
from benchmarks.suites import check_blind
from benchmarks.suites.spec import Suite
from leaderboard.bounded_prompts import BoundedPrompts
from leaderboard.manifest import PROMPTS, Manifest
from mas_envs.errors import UserError
from mas_envs.grading.policy import policy_argument
from mas_envs.registration import EnvSpec, all_specs
from mas_envs.search.retrieval import search_tool
from mas_envs.tools import Tool, math_grader, qa_grader
from mas_envs.workflow import WorkflowEnv

_SHIPPED = re.compile(r"[\w-]+")
_OWN = re.compile(r"[^/\\]+\.toml")
_WHOSE = re.compile(r"\w*", re.ASCII)
GRADERS: dict[str, Tool] = {"math": math_grader, "qa": qa_grader}
EMBEDDED = "tinyworld"  # the retriever of the passages that come with us
MOST_OF_ANYTHING = 10_000  # turns, rounds, passages
MOST_AGENTS = 1000  # of one role; they are made before anything is compared
MOST_DOTS = 200  # in a line of TOML: its reader takes time squared for the parts of a key
_ELSEWHERE = re.compile(r"[\w.]+:\w+", re.ASCII)


def third_party(manifest: Manifest) -> bool:
    """Whether the environment is somebody's own class or plug-in, which we do not have."""
    name, entry_point = manifest.env.get("id"), manifest.env.get("entry_point")
    if not isinstance(name, str) or not isinstance(entry_point, str):
        return False
    known = {spec.id for spec in all_specs()}
    return name not in known and _ELSEWHERE.fullmatch(entry_point) is not None


def declared_environment(
    manifest: Manifest,
    suite: Suite | None,
    prompts: Mapping[str, bytes],
    retriever: str | None = None,
) -> WorkflowEnv:
    """The environment as declared; `prompts` are the submission's files, by member.

    `suite` is what is known of the questions' suite, which says how answers are graded.
    What it searches is `retriever`, or the embedded corpus. Raises `UserError`, and whatever a
    constructor raises for arguments that nobody vouches for.
    """
    declared = EnvSpec.from_json(msgspec.json.encode(manifest.env).decode())
    ours = mas_envs.spec(declared.id)
    if ours.entry_point != declared.entry_point:
        raise UserError(f"{declared.id} is {ours.entry_point}, not {declared.entry_point}")
    kwargs = {key: value for key, value in declared.kwargs.items() if key != "tasks"}
    _check_bounded(kwargs)
    _check_corpus(kwargs, suite)
    _check_harmless(kwargs, prompts)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in prompts.items():
            if has_many_dots(content):
                raise UserError(f"{name}: a line has more than {MOST_DOTS} dots")
            (Path(folder) / name).write_bytes(content)
        # The set's id may depend on its file's name.
        with copied_prompts(Path(folder), kwargs.pop("prompts", None)) as chosen:
            env = mas_envs.make(declared.id, **kwargs, prompts=chosen)
    check_blind(env)
    _check_grading(env, suite)
    if env.default_prompts is not None:
        env.prompts = BoundedPrompts(env.prompts)
    if retriever is not None and "search" in env.tools:
        env.tools = {**env.tools, "search": search_tool(retriever)}
    env.spec = declared
    return env


def has_many_dots(content: bytes) -> bool:
    """Whether reading this TOML could take long."""
    return any(line.count(b".") > MOST_DOTS for line in content.splitlines())


def suites_grading(suite: Suite | None) -> Any:
    """What the suite says of normalisation; None: nothing, or no suite that is known."""
    return suite.env.args.get("grading") if suite is not None else None


def grading_options(kind: str, grading: Any) -> dict[str, Any]:
    """What a call of a grader ("math", "qa") says besides answer and gold, by our environments."""
    if kind == "math":
        return policy_argument(grading or "default")
    return {} if grading in (None, "strict") else {"normaliser": grading}


def _check_grading(env: WorkflowEnv, suite: Suite | None) -> None:
    """Answers are graded as the suite's are, not by another kind of grader or by other rules.

    What counts are the rules, whichever argument brings them: `compat` means the policy "drmas" of
    formulas, or SQuAD's normaliser, which most suites of search ask for anyway. Of a suite that
    asks for no normaliser it may choose that one: it is exact match as papers report it. Of a suite
    that nobody knows, the rules are believed, as its golds are. Raises `UserError`.
    """
    if suite is None:
        return
    grade = env.tools.get("grade")
    kind = next((name for name, grader in GRADERS.items() if grader is grade), None)
    if kind != suite.grader:
        raise UserError(f"its answers are graded as {kind}; those of {suite.name} as "
                        f"{suite.grader}")  # fmt: skip
    compat: Any = getattr(env, "compat", None)
    given = env.grading if kind == "math" else grading_options("qa", env.normaliser)
    wanted = grading_options(kind, suites_grading(suite))
    published = kind == "qa" and compat is not None and suites_grading(suite) is None
    if given != wanted and not published:
        why = f" (compat={compat!r})" if compat is not None else ""
        held = repr(wanted)[:80] if wanted else "the suite's default"
        theirs = repr(given)[:80] if given else "the default"
        raise UserError(f"answers to {suite.name} are graded by {held}, not by {theirs}{why}")


def _check_corpus(kwargs: dict[str, Any], suite: Suite | None) -> None:
    """The passages of a suite that comes with its corpus are those. Raises `UserError`."""
    own = suite is not None and suite.grader == "qa" and "retriever" not in suite.env.needs
    wanted = suite.env.args.get("retriever", EMBEDDED) if suite is not None else EMBEDDED
    if own and wanted == EMBEDDED != kwargs.get("retriever", EMBEDDED):
        raise UserError(f"retriever is {kwargs['retriever']!r:.80}; the questions of "
                        f"{suite and suite.name} are about the passages that come with "
                        "them")  # fmt: skip


def _check_bounded(value: Any, name: str = "") -> None:
    """No whole number is so large that a game of that size could not be meant. Raises `UserError`.

    Some are memory or time before anything is compared.
    """
    if isinstance(value, dict):
        for key, one in value.items():
            _check_bounded(one, str(key))
    elif isinstance(value, list):
        for one in value:
            _check_bounded(one, name)
    elif isinstance(value, int) and abs(value) > MOST_OF_ANYTHING:
        raise UserError(f"{name!r:.80} is too large; a submission has at most {MOST_OF_ANYTHING} "
                        "of anything")  # fmt: skip


def _check_harmless(kwargs: dict[str, Any], prompts: Mapping[str, bytes]) -> None:
    """Arguments may name no code and no file of this machine. Raises `UserError`.

    Sets `retriever` aside: what it found is believed, or searched with ours.
    """
    kwargs.pop("retriever", None)
    for role, hook in dict(kwargs.get("shaping") or {}).items():
        if not str(hook).startswith("mas_envs.shaping:"):
            raise UserError(f"shaping of {role!r} is {hook!r}; a submission is replayed with "
                            "hooks of mas_envs.shaping only")  # fmt: skip
    for name in ("solvers", "debaters"):
        if isinstance(number := kwargs.get(name), int) and number > MOST_AGENTS:
            raise UserError(f"{name} is {number}; a submission has at most {MOST_AGENTS}")
    if (chosen := kwargs.get("prompts")) is None:
        return
    if isinstance(chosen, dict):
        chosen = ",".join(f"{agent}={own}" for agent, own in chosen.items())
        prompts = {}  # files are named in a text, as the run records them
    if not isinstance(chosen, str):
        raise UserError(f"prompts {chosen!r:.80}; name sets that are shipped, or TOML files")
    for whose, own in sets_of(chosen).items():
        member = f"prompts.{whose}.toml" if whose else PROMPTS
        file = _OWN.fullmatch(own) is not None and member in prompts
        if _WHOSE.fullmatch(whose) is None or not (file or _SHIPPED.fullmatch(own)):
            raise UserError(f"prompts {own!r:.80} are neither shipped nor in the submission; "
                            "pack puts the TOML files of a run there")  # fmt: skip
