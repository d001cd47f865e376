"""Play a submitted conversation again, with our environment and our grader.

Texts come from the submission, and results of tools that we do not have; who is asked what, how
each answer is read, what the other tools give, what a turn earns and whether the answer is right
come from us. Whatever then differs was not produced as declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from leaderboard.manifest import Manifest
from mas_envs.episodes.schema import Episode, Sampling, ToolResult, Turn, encode
from mas_envs.errors import MachineryError, ReplayMismatch
from mas_envs.seeds import environment_seed, turn_seed
from mas_envs.session import Session
from mas_envs.tasks import Task
from mas_envs.tools import call_now
from mas_envs.workflow import WorkflowEnv

SCORES = 1e-4  # by which scores of passages may differ from machine to machine, relative
CLOCK = ("started", "seconds")

Report = Callable[[str, str], None]
"""Takes the check and the problem found."""


def embedded_corpus(manifest: Manifest) -> bool:
    """Whether the passages, if any are searched, are those that come with us."""
    kwargs = manifest.env.get("kwargs")
    return not isinstance(kwargs, dict) or kwargs.get("retriever", "tinyworld") == "tinyworld"


def replayed(
    env: WorkflowEnv,
    manifest: Manifest,
    task: Task,
    group: int,
    stored: Episode,
    report: Report,
    computed: frozenset[str] = frozenset({"grade"}),
) -> Episode | None:
    """The episode as it must have been; None when the conversation cannot be replayed.

    `computed` are the tools whose stored results we do not believe but compute: the grader, and
    the search where we have what was searched.
    """
    seed = environment_seed(manifest.seed, 0, task.id)
    session = Session(env, task, seed=seed, group=group, sample=stored.sample)
    try:
        for event in stored.events:
            session.repeat(_believed(env, manifest, session, event, report, computed))
    except ReplayMismatch as mismatch:
        report("replay", str(mismatch))
        return None
    except MachineryError:
        raise
    except Exception as error:  # a workflow fed with tool results that no tool gave
        report("replay", f"the environment fails on it: {type(error).__name__}: {error}"[:200])
        return None
    if session.outcome is None:
        report("replay", "the conversation stops before its end")
        return None
    _compare(session.episode, stored, report)
    return session.episode


def _believed(
    env: WorkflowEnv,
    manifest: Manifest,
    session: Session,
    event: Turn | ToolResult,
    report: Report,
    computed: frozenset[str],
) -> Turn | ToolResult:
    """The event with what we compute ourselves in place of what was handed in."""
    if session.outcome is not None:
        raise ReplayMismatch(f"event {event.index}: comes after the end of the conversation")
    if isinstance(event, ToolResult):
        call = session.call
        asked = call is not None and (call.tool, call.args) == (event.tool, event.args)
        if event.tool not in computed or not asked:
            return event
        result = call_now(env.tools[event.tool], event.args)
        if event.tool == "grade":
            if result != event.result:
                report("grades", f"graded {verdict(event.result)}, we grade {verdict(result)}")
            return msgspec.structs.replace(event, result=result)
        if not _same_passages(event.result, result):
            query = event.args.get("query")
            report("tools", f"event {event.index}: {query!r:.80} finds something else here")
        return event  # with what the agents were shown, so that the replay goes on
    sampling, limit = manifest.sampling, session.asks[0].max_tokens if session.asks else None
    if limit is not None and limit < sampling.max_tokens:
        sampling = msgspec.structs.replace(sampling, max_tokens=limit)
    place = (session.episode.task, session.episode.sample, session.turn)
    check_turn(manifest, event, sampling, place, report)
    return event


def check_turn(
    manifest: Manifest, turn: Turn, sampling: Sampling, place: tuple[str, int, int], report: Report
) -> None:
    """Sampling, seed and model of a turn; `place` is (task, sample, number of the decision)."""
    if turn.sampling != sampling:
        report("settings", f"event {turn.index} was sampled with {turn.sampling}")
    drawn = turn_seed(manifest.seed, 0, *place)
    if turn.seed != drawn:
        report("settings", f"event {turn.index} has seed {turn.seed}, the run's gives {drawn}")
    if turn.model not in manifest.models.get(turn.role, ()):
        report("settings", f"event {turn.index} is by {turn.model!r:.80}, which is not declared")


def _same_passages(stored: Any, ours: list[dict[str, Any]]) -> bool:
    """Whether the same passages were found in the same order; scores may differ a little."""
    if not isinstance(stored, list) or len(stored) != len(ours):
        return False
    for theirs, own in zip(stored, ours, strict=True):
        if not isinstance(theirs, dict) or not isinstance(theirs.get("score"), int | float):
            return False
        if {**theirs, "score": 0} != {**own, "score": 0}:
            return False
        if not math.isclose(theirs["score"], own["score"], rel_tol=SCORES):
            return False
    return True


def verdict(result: Any) -> str:
    """A grade as the tool gave it, in a line."""
    if not isinstance(result, dict):
        return repr(result)[:80]
    return f"{result.get('correct')} ({result.get('status')}, answer {result.get('answer')!r:.60})"


_PLACE = {
    "question": "questions", "gold": "questions", "meta": "questions", "group": "questions",
    "env": "settings", "prompts": "settings", "seed": "settings", "step": "settings",
    "grade": "grades", "reward": "rewards", "provenance": "samples",
}  # fmt: skip


def _compare(ours: Episode, stored: Episode, report: Report) -> None:
    """Report every field in which the stored episode differs from ours."""
    a, b = _json_values(ours), _json_values(stored)
    for key in a.keys() | b.keys():
        if key == "events" or key in CLOCK or key in ("status", "reason"):
            continue
        if a.get(key) != b.get(key):
            was = f"{key} is {b.get(key)!r:.80}, not {a.get(key)!r:.80}"
            report(_PLACE.get(key, "replay"), was)
    for one, other in zip(a["events"], b["events"], strict=True):
        for key in one.keys() | other.keys():
            if key in CLOCK or (key == "result" and one.get("tool") == "grade"):
                continue
            if one.get(key) != other.get(key):
                check = "rewards" if key == "reward" else "replay"
                was = f"{key} is {other.get(key)!r:.80}, not {one.get(key)!r:.80}"
                report(check, f"event {other['index']}: {was}")


def _json_values(episode: Episode) -> dict[str, Any]:
    """As JSON values, so that a tuple equals the list it was stored as."""
    plain: dict[str, Any] = msgspec.json.decode(encode(episode))
    return plain
