"""What the viewer shows of an episode, as plain JSON values.

A `Case` is one question and one sample number: the same sample of the same task in every section,
shown side by side. Each case has a row (short, for the list) and its conversations (long); they
are kept apart so that a page can hold all rows and load conversations when they are opened.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from mas_envs.episodes.schema import Episode, ToolResult, Turn
from mas_envs.episodes.text import are_passages, is_grade

LONGEST_TEXT = 200_000  # characters of one text kept in a page, unless the case is too large

VERDICTS = {True: "right", False: "wrong", None: "undecided"}


class Case(NamedTuple):
    """The episodes of one (task, sample), one per section; None where a section has none.

    Forks of one place in one episode have samples of their own.
    """

    id: str
    task: str
    sample: int
    episodes: tuple[Episode | None, ...]


def pair(sections: Sequence[Sequence[Episode]]) -> list[Case]:
    """All cases, in the order in which the tasks first appear, forks last, then by sample.

    A sample recorded twice (a failed try, then a finished one) makes two cases.
    """
    order: dict[str, int] = {}
    found: dict[tuple[str, str, int, int], list[Episode | None]] = {}
    for place, episodes in enumerate(sections):
        tries: Counter[tuple[str, str, int]] = Counter()
        for episode in episodes:
            order.setdefault(episode.task, len(order))
            key = (episode.task, episode.provenance.get("fork", ""), episode.sample)
            row = found.setdefault((*key, tries[key]), [None] * len(sections))
            row[place] = episode
            tries[key] += 1
    return [
        Case(
            ".".join(map(str, filter(None, (task, fork, str(sample), again)))),
            task,
            sample,
            tuple(row),
        )
        for (task, fork, sample, again), row in sorted(
            found.items(), key=lambda pair: (order[pair[0][0]], *pair[0][1:])
        )
    ]


def sampling_order(cases: Sequence[Case]) -> list[int]:
    """Positions in the order in which a sample is filled: the first sample of every question,
    questions by the hash of their task, then the second samples, and so on. It depends on nothing
    that happened in the episodes, so the sample flatters nobody.
    """

    def place(position: int) -> tuple[int, bytes]:
        case = cases[position]
        return case.sample, hashlib.sha256(case.id.encode("utf-8", "replace")).digest()

    return sorted(range(len(cases)), key=place)


def outcome(episode: Episode) -> str:
    """right | wrong | undecided | ungraded | failed."""
    if episode.status != "done":
        return "failed"
    if episode.grade is None:
        return "ungraded"
    return VERDICTS[episode.grade.correct]


def change(outcomes: Sequence[str | None]) -> str | None:
    """From the first section to the last: improved | worsened | still right | still wrong.

    None when there is nothing to compare (one section, a missing or a failed episode).
    """
    known = [one for one in (outcomes[0], outcomes[-1]) if one not in (None, "failed", "ungraded")]
    if len(outcomes) < 2 or len(known) < 2:
        return None
    first, last = (one == "right" for one in known)
    if first == last:
        return "still right" if last else "still wrong"
    return "improved" if last else "worsened"


def row(case: Case) -> dict[str, Any]:
    """What the list shows and filters by: one entry of the index."""
    first = next(episode for episode in case.episodes if episode is not None)
    return {
        "id": case.id,
        **heading(first),
        "change": change([outcome(e) if e is not None else None for e in case.episodes]),
        "episodes": [None if e is None else brief(e) for e in case.episodes],
    }


def heading(episode: Episode) -> dict[str, Any]:
    """What the list says of the question and the sample, the same in every section."""
    level = episode.meta.get("level")
    return {
        "question": shorten(episode.question, 300),
        "level": None if level is None else shorten(str(level), 80),
        "sample": episode.sample,
        "fork": _fork(episode),
    }


def brief(episode: Episode) -> dict[str, Any]:
    """What the list says of one episode."""
    return {
        "outcome": outcome(episode),
        "answer": shorten(answer(episode), 80),
        "agents": [shorten(agent, 80) for agent in dict.fromkeys(t.agent for t in episode.turns)],
    }


def answer(episode: Episode) -> str:
    """The extracted answer, or "" where there is none."""
    return (episode.grade.answer if episode.grade is not None else None) or ""


def conversation(episode: Episode, limit: int = LONGEST_TEXT) -> dict[str, Any]:
    """The whole episode for reading; texts longer than `limit` characters lose their middle."""
    rounds: Counter[str] = Counter()
    events: list[dict[str, Any]] = []
    for event in episode.events:
        if isinstance(event, ToolResult):
            events.append(_tool(event, limit))
        else:
            rounds[event.agent] += 1
            events.append(_turn(event, rounds[event.agent], limit))
    return {
        "question": shorten(episode.question, limit),
        "fork": _fork(episode),
        "events": events,
        "verdict": _verdict(episode, limit),
        "facts": _facts(
            ("task", episode.task),
            ("sample", episode.sample),
            ("environment", episode.env.get("id")),
            ("arguments", episode.env.get("kwargs")),
            ("prompts", episode.prompts),
            ("step", episode.step),
            ("seed", episode.seed),
            ("seconds", round(episode.seconds, 3)),
            ("task data", episode.meta),
            ("provenance", episode.provenance),
            limit=limit,
        ),
    }


def _fork(episode: Episode) -> dict[str, str] | None:
    """Where the episode was left that this one is a fork of: its sample and its event."""
    origin = episode.provenance
    if "fork" not in origin:
        return None
    return {key: shorten(origin.get(key, "?"), 20) for key in ("sample", "decision")}


def _turn(turn: Turn, round_: int, limit: int) -> dict[str, Any]:
    sampling = turn.sampling
    value = None if turn.value is None or turn.value == turn.text else as_text(turn.value)
    return {
        "kind": "turn",
        "index": turn.index,
        "batch": turn.batch,
        "agent": turn.agent,
        "role": turn.role,
        "round": round_,
        "text": shorten(turn.text, limit),
        "status": turn.parse_status,
        "value": None if value is None else shorten(value, min(limit, 200)),
        "reward": _number(turn.reward),
        "finish": turn.finish_reason,
        "shown": [[m.role, shorten(m.content, limit)] for m in turn.messages],
        "facts": _facts(
            ("model", turn.model),
            ("policy version", ", ".join(str(version) for _, version in turn.versions)),
            ("prompt tokens", turn.prompt_tokens or None),
            ("response tokens", turn.response_tokens or None),
            ("temperature", sampling.temperature),
            ("top-p", sampling.top_p),
            ("top-k", sampling.top_k or None),
            ("token limit", sampling.max_tokens),
            ("finish reason", turn.finish_reason),
            ("seed", turn.seed),
            ("seconds", round(turn.seconds, 3) or None),
            limit=limit,
        ),
    }


def _tool(event: ToolResult, limit: int) -> dict[str, Any]:
    passages: list[dict[str, Any]] = event.result if are_passages(event) else []
    return {
        "kind": "tool",
        "index": event.index,
        "batch": event.batch,
        "tool": event.tool,
        "args": _facts(*event.args.items(), limit=limit),
        "result": "" if passages else shorten(as_text(event.result), limit),
        "passages": [_passage(passage, limit) for passage in passages],
        "verdict": VERDICTS[event.result["correct"]] if is_grade(event.result) else None,
    }


def _passage(passage: dict[str, Any], limit: int) -> list[str]:
    """Title, text and score."""
    title, score = passage.get("title"), passage.get("score")
    shown = f"{score:.4g}" if isinstance(score, float) else "" if score is None else as_text(score)
    return [shorten(as_text(part or ""), limit) for part in (title, passage["text"], shown)]


def _verdict(episode: Episode, limit: int) -> dict[str, Any]:
    grade = episode.grade
    failed = episode.status != "done"
    return {
        "outcome": outcome(episode),
        "answer": shorten(answer(episode), min(limit, 2000)),
        "gold": shorten(_gold(episode.gold), min(limit, 2000)),
        "status": "" if grade is None or failed else grade.status,
        "reason": shorten(episode.reason if failed else grade.reason if grade else "", limit),
        "grader": "" if grade is None else grade.grader,
        "reward": None if failed else _number(episode.reward),
        "info": _facts(*episode.info.items(), limit=min(limit, 2000)),
    }


def _gold(gold: Any) -> str:
    if gold is None:
        return ""
    return " or ".join(map(as_text, gold)) if isinstance(gold, list | tuple) else as_text(gold)


def _facts(*pairs: tuple[str, Any], limit: int) -> list[list[str]]:
    """[name, text] of everything that says something."""
    return [
        [name, shorten(in_words(value), limit)]
        for name, value in pairs
        if value is not None and value not in ("", {}, [])
    ]


def in_words(value: Any) -> str:
    """A list or object of texts and numbers as `a, b` or `x = 1, y = 2`; else as `as_text`."""
    if isinstance(value, list | tuple) and all(map(_is_word, value)):
        return ", ".join(map(as_text, value))
    if isinstance(value, dict) and all(map(_is_word, value.values())):
        return ", ".join(f"{key} = {as_text(one)}" for key, one in value.items())
    return as_text(value)


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def as_text(value: Any) -> str:
    """A JSON value as text: strings as they are, the rest as JSON."""
    if isinstance(value, str):
        return value
    if type(value) is int:  # most values are
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _number(value: float) -> float | str:
    """JSON has no NaN and no infinity; they are shown by name."""
    return round(value, 6) if math.isfinite(value) else str(value)


def shorten(text: str, limit: int) -> str:
    """`text`, or its first and last part with a note of how much is left out between them."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    left_out = len(text) - limit
    return f"{text[: limit - tail]} […{left_out:,} characters left out…] {text[-tail:]}"
