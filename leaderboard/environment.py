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
from leaderboard.manifest import PROMPTS, Manifest
from mas_envs.errors import UserError
from mas_envs.registration import EnvSpec, all_specs
from mas_envs.search.retrieval import search_tool
from mas_envs.workflow import WorkflowEnv

_SHIPPED = re.compile(r"[\w-]+")
_OWN = re.compile(r"[^/\\]+\.toml")
_WHOSE = re.compile(r"\w*", re.ASCII)
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
    _check_harmless(kwargs, prompts)
    _check_grading(kwargs, suite)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in prompts.items():
            if any(line.count(b".") > MOST_DOTS for line in content.splitlines()):
                raise UserError(f"{name}: a line has more than {MOST_DOTS} dots")
            (Path(folder) / name).write_bytes(content)
        # The set's id may depend on its file's name.
        with copied_prompts(Path(folder), kwargs.pop("prompts", None)) as chosen:
            env = mas_envs.make(declared.id, **kwargs, prompts=chosen)
    check_blind(env)
    if retriever is not None and "search" in env.tools:
        env.tools = {**env.tools, "search": search_tool(retriever)}
    env.spec = declared
    return env


def suites_grading(suite: Suite | None) -> Any:
    """What the suite says of normalisation; None: nothing, or no suite that is known."""
    return suite.env.args.get("grading") if suite is not None else None


def _check_grading(kwargs: dict[str, Any], suite: Suite | None) -> None:
    """Answers are held to what the suite calls equal, not to the submission's own rules.

    `compat` brings its own, published ones. Of a suite that nobody knows, the rules are believed,
    as its golds are. Raises `UserError`.
    """
    if suite is None:
        return
    given, wanted = kwargs.get("grading"), suites_grading(suite)
    if given is not None and given != wanted:
        held = "the suite's default" if wanted is None else repr(wanted)
        raise UserError(f"grading is {given!r:.80}; answers to {suite.name} are graded by {held}")


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
