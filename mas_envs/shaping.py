"""Shaping hooks that are ready to use: what a finished episode adds to one turn's own reward.

Named in an environment's arguments, they are recorded with it and replayed:

    make("math-v0", final_review=True, shaping={"verifier": "mas_envs.shaping:right_verdict"})
    make("search-v0", shaping={"search": "mas_envs.shaping:found_support"})

A hook must be a pure function of the episode and the turn, like `play`. Hooks of your own are
named the same way, "my_module:my_hook".
"""

from __future__ import annotations

from mas_envs.drmas import scored
from mas_envs.episodes.schema import Episode, ToolResult, Turn


def right_verdict(episode: Episode, turn: Turn) -> float:
    """For math-v0's verifier: +0.5 when its verdict about the draft before it is right, -0.5 when
    it is wrong, 0 when it cannot be read or the grader cannot decide. The draft is graded as the
    environment grades the last one.

    `shaping={"verifier": "mas_envs.shaping:right_verdict"}`
    """
    from mas_envs.grading import grade_math

    earlier = [one for one in episode.turns if one.index < turn.index and one.role != turn.role]
    if turn.parse_status != "ok" or turn.value not in ("approve", "reject") or not earlier:
        return 0.0
    calls = (one for one in episode.events if isinstance(one, ToolResult) and one.tool == "grade")
    policy = next((call.args.get("policy") for call in calls), None) or "default"
    draft = earlier[-1].text
    if episode.env.get("kwargs", {}).get("compat") == "drmas":
        draft = scored(draft)
    correct = grade_math(draft, episode.gold, policy).correct
    if correct is None:
        return 0.0
    return 0.5 if correct == (turn.value == "approve") else -0.5


def found_support(episode: Episode, turn: Turn) -> float:
    """For search-v0's search agent: the share of the task's supporting passages that the turn's
    query brought up for the first time, in [0, 1].

    The ids of the supporting passages stand in `meta["supporting"]` of the task (tinyworld has
    them); without any, 0. Over an episode it sums to at most 1. For search-single-v0 the role is
    "searcher".

    `shaping={"search": "mas_envs.shaping:found_support"}`
    """
    wanted = set(episode.meta.get("supporting") or ())
    after = episode.events[turn.index + 1] if turn.index + 1 < len(episode.events) else None
    if not wanted or not isinstance(after, ToolResult) or after.tool != "search":
        return 0.0
    before = [one for one in episode.events[: turn.index] if isinstance(one, ToolResult)]
    seen = {found for one in before for found in _ids(one)}
    return len(wanted & _ids(after) - seen) / len(wanted)


def _ids(event: ToolResult) -> set[str]:
    """The passages that a search brought up."""
    return {passage["id"] for passage in event.result} if event.tool == "search" else set()
