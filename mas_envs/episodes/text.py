"""An episode as plain text, for terminals and logs."""

from __future__ import annotations

from mas_envs.episodes.schema import Episode, Turn


def conversation_text(episode: Episode) -> str:
    """The conversation the way a person reads it: question, turns, tool results, verdict."""
    lines = [f"task {episode.task}: {episode.question}"]
    for event in episode.events:
        if isinstance(event, Turn):
            note = "" if event.parse_status == "ok" else f" [{event.parse_status}]"
            lines.append(f"{event.agent}{note}: {event.text}")
        else:
            lines.append(f"({event.tool}: {event.result})")
    if episode.status == "failed":
        lines.append(f"failed: {episode.reason}")
    elif episode.grade is not None:
        verdict = {True: "right", False: "wrong", None: "undecided"}[episode.grade.correct]
        lines.append(
            f"{verdict} ({episode.grade.reason or episode.grade.status}), reward {episode.reward:g}"
        )
    return "\n".join(lines)
