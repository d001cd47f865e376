"""The drafts of one solver, each of them right or wrong.

The environment grades the last draft only; the earlier ones are graded here as that one was: with
the grader and the options of the recorded call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from mas_envs.drmas import scored
from mas_envs.episodes.schema import Episode, ToolResult, Turn
from mas_envs.grading.processes.graders import GRADERS


@dataclass(frozen=True, slots=True)
class Draft:
    """A solver's turn; `right` is None where nobody can tell."""

    turn: Turn
    right: bool | None


def drafts_of(episode: Episode) -> list[Draft] | None:
    """The drafts of a finished episode, in order.

    None unless one agent, a solver, wrote them all and the last is what was graded.
    """
    turns = [turn for turn in episode.turns if turn.role == "solver"]
    calls = [e for e in episode.events if isinstance(e, ToolResult) and e.tool == "grade"]
    if len({turn.agent for turn in turns}) != 1 or len(calls) != 1 or episode.grade is None:
        return None
    reference = episode.env.get("kwargs", {}).get("compat") == "drmas"
    responses = [scored(turn.text) if reference else turn.text for turn in turns]
    args = calls[0].args
    if args.get("response") != responses[-1]:
        return None
    earlier = zip(turns[:-1], responses, strict=False)
    drafts = [Draft(turn, _graded(episode, args, response)) for turn, response in earlier]
    return [*drafts, Draft(turns[-1], episode.grade.correct)]


def draft_before(drafts: Sequence[Draft], turn: Turn) -> Draft | None:
    """What a verifier saw: the last draft before its turn."""
    return next((draft for draft in reversed(drafts) if draft.turn.index < turn.index), None)


def _graded(episode: Episode, args: dict[str, Any], response: str) -> bool | None:
    assert episode.grade is not None
    kind = episode.grade.grader.partition("-")[0]
    if kind not in GRADERS or not args.keys() <= _ARGUMENTS:
        return None  # a grader that is not ours
    return _verdict(kind, msgspec.json.encode(args | {"response": response}))


_ARGUMENTS = {"response", "gold", "policy", "metric", "normaliser"}


@lru_cache(maxsize=1024)  # samples of an easy question repeat each other
def _verdict(kind: str, encoded: bytes) -> bool | None:
    args = msgspec.json.decode(encoded)
    response, gold = args.pop("response"), args.pop("gold")
    return GRADERS[kind](response, gold, **args).correct
