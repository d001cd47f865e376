"""An episode as plain text, for terminals and logs."""

from __future__ import annotations

from typing import Any

import msgspec

from mas_envs.episodes.schema import Episode, ToolResult, Turn

_VERDICTS = {True: "right", False: "wrong", None: "undecided"}


def conversation_text(episode: Episode) -> str:
    """The conversation the way a person reads it: question, turns, tool results, verdict.

    In brackets behind an agent: how its answer was read, if not "ok", and the turn's own reward,
    if it has one.
    """
    lines = [f"task {episode.task}: {episode.question}"]
    results = [event for event in episode.events if isinstance(event, ToolResult)]
    grades = [event for event in results if is_grade(event.result)]
    for event in episode.events:
        if isinstance(event, Turn):
            lines.append(_turn(event))
        elif episode.grade is None or grades != [event]:  # an only grade is what the end says
            lines.append(_tool(event))
    if episode.status == "failed":
        lines.append(f"failed: {episode.reason}")
    elif episode.grade is not None:
        grade = episode.grade
        verdict = f"{_VERDICTS[grade.correct]} ({grade.reason or grade.status})"
        lines.append(f"{verdict}, reward {episode.reward:g}")
    elif episode.status == "done":
        lines.append(f"reward {episode.reward:g}")
    return "\n".join(lines)


def _turn(turn: Turn) -> str:
    notes: list[str] = [turn.parse_status] if turn.parse_status != "ok" else []
    if turn.reward:
        notes.append(f"reward {turn.reward:+g}")
    note = f" [{', '.join(notes)}]" if notes else ""
    return f"{turn.agent}{note}: {turn.text}"


def _tool(event: ToolResult) -> str:
    """Passages one per line below their query, a grade in words, anything else as JSON."""
    result = event.result
    if is_grade(result):
        reason = result.get("reason") or result["status"]
        return f"({event.tool}: {_VERDICTS[result['correct']]}, {reason})"
    if are_passages(event):
        query = event.args.get("query", event.args)
        lines = [f"({event.tool} {_json(query)}: {len(result)} passages)"]
        lines += [f"    [{rank}] {_passage(one)}" for rank, one in enumerate(result, 1)]
        return "\n".join(lines)
    return f"({event.tool} {_json(event.args)}: {_json(result)})"


def is_grade(result: Any) -> bool:
    """Whether a tool's result is a grader's verdict."""
    found = isinstance(result, dict) and "status" in result and "correct" in result
    return found and isinstance(result["correct"], bool | None)


def are_passages(event: ToolResult) -> bool:
    """Whether a tool's result is a list of passages, as a search gives."""
    result = event.result
    if not isinstance(result, list) or not (result or "query" in event.args):
        return False
    return all(isinstance(one, dict) and "text" in one for one in result)


def _passage(passage: dict[str, Any]) -> str:
    text = " ".join(str(passage["text"]).split())
    return f"{passage['title']}: {text}" if passage.get("title") else text


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
