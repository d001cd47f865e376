"""A submission's conversations in pages, for reading: text only, golds and problems withheld.

A suite's questions are shown if its licence is known to allow it. Of the others a page has what
the agents wrote, without the prompts they were shown, the grades, and the passages of six words and
more that stand in the problem too. Their conversations come in an order that only the problem texts
can give, so that the per-question results, which are public, do not point to a text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.suites import suites
from mas_envs.episodes.schema import Episode, ToolResult
from mas_envs.episodes.text import is_grade
from mas_envs.episodes.viewer.conversations import conversation, outcome, shorten

if TYPE_CHECKING:
    from leaderboard.record import Record

FREE = ("MIT", "Apache-2.0", "CC BY", "CC0")
PER_PAGE = 10
LONGEST = 20_000  # characters of one text
QUOTED = 6  # words in a row that make a quotation
WITHHELD = "[problem text withheld]"
_WORD = re.compile(r"\w+")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as a page shows it; `outcome`, `question` and `gold` are "" where withheld.

    `events` are those of `mas_envs.episodes.viewer.conversations.conversation`.
    """

    name: str
    question: str
    outcome: str
    answer: str
    gold: str
    reason: str
    reward: float | str | None
    events: list[dict[str, Any]]


class ReaderPage(msgspec.Struct, frozen=True, kw_only=True):
    """`number` counts from 1 to `pages`."""

    submission: str
    number: int
    pages: int
    withheld: bool
    conversations: list[Shown]


def redistributable(suite: str) -> bool:
    """Whether the licence of a suite's problems is known and lets us show them."""
    spec = suites().get(suite)
    return spec is not None and spec.licence.startswith(FREE)


def reader_pages(
    record: Record, episodes: Iterable[Episode], limit: int | None = None
) -> Iterator[ReaderPage]:
    """The pages of a submission's conversations, by question and sample; at most `limit` of them.

    Keeps all shown conversations in memory until they are sorted: about `limit` × 20 kB.
    """
    withheld = not redistributable(record.manifest.suite.name)
    chosen = _first(episodes, limit, withheld)
    pages = -(-len(chosen) // PER_PAGE)
    rest = iter(enumerate(chosen, 1))
    for number in range(1, pages + 1):
        some = [_shown(episode, place, withheld) for place, episode in islice(rest, PER_PAGE)]
        yield ReaderPage(submission=record.id, number=number, pages=pages, withheld=withheld,
                         conversations=some)  # fmt: skip


def _first(episodes: Iterable[Episode], limit: int | None, withheld: bool) -> list[Episode]:
    """The first `limit` in the order in which they are shown, holding twice as many at most."""
    held: list[Episode] = []
    for episode in episodes:
        held.append(episode)
        if limit is not None and len(held) >= 2 * limit + 64:
            held = sorted(held, key=lambda one: _place(one, withheld))[:limit]
    return sorted(held, key=lambda one: _place(one, withheld))[:limit]


def _place(episode: Episode, withheld: bool) -> tuple[Any, ...]:
    if not withheld:
        return episode.group, episode.task, episode.sample
    # The problem's text is not public, and neither is this order.
    secret = f"{episode.question}\0{episode.gold}\0{episode.sample}"
    return (hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest(),)


def _shown(episode: Episode, place: int, withheld: bool) -> Shown:
    if withheld:
        episode = _without_grades(episode)
    seen = conversation(episode, LONGEST)
    verdict = seen["verdict"]
    shown = Shown(
        name=f"Conversation {place}" if withheld else f"Sample {episode.sample + 1}",
        question="" if withheld else seen["question"],
        outcome="" if withheld else outcome(episode),
        answer="" if withheld else verdict["answer"],
        gold="" if withheld else verdict["gold"],
        reason="" if withheld else verdict["reason"],
        reward=None if withheld else verdict["reward"],
        events=[_event(event, withheld) for event in seen["events"]],
    )
    return _unquoted(shown, episode.question) if withheld else shown


def _without_grades(episode: Episode) -> Episode:
    """Calls of graders have the gold in their arguments, and their results give it away."""
    kept = [
        event
        for event in episode.events
        if not (isinstance(event, ToolResult) and (event.tool == "grade" or is_grade(event.result)))
    ]
    return msgspec.structs.replace(episode, events=kept)


# Of a turn: the prompts hold the problem, and rewards may follow from the grade.
_PRIVATE: dict[str, Any] = {"facts": [], "shown": [], "reward": 0.0, "value": None}


def _event(event: dict[str, Any], withheld: bool) -> dict[str, Any]:
    return event | _PRIVATE if withheld and event["kind"] == "turn" else event


def _unquoted(shown: Shown, question: str) -> Shown:
    words = _words(question)
    length = min(QUOTED, len(words))
    runs = (
        {tuple(words[n : n + length]) for n in range(len(words) - length + 1)} if words else set()
    )
    return msgspec.structs.replace(shown, events=_blanked(shown.events, runs, length))


def _blanked(value: Any, runs: set[tuple[str, ...]], length: int) -> Any:
    if isinstance(value, str):
        return unquoted(value, runs, length)
    if isinstance(value, dict):
        return {key: _blanked(one, runs, length) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_blanked(one, runs, length) for one in value]
    return value


def unquoted(text: str, runs: set[tuple[str, ...]], length: int) -> str:
    """`text` without the parts whose words stand in a row in the problem."""
    found = list(_WORD.finditer(text))
    words = [match.group().casefold() for match in found]
    spans: list[tuple[int, int]] = []
    for start in range(len(words) - length + 1 if runs else 0):
        if tuple(words[start : start + length]) in runs:
            first, last = found[start].start(), found[start + length - 1].end()
            if spans and first <= spans[-1][1]:
                spans[-1] = (spans[-1][0], last)
            else:
                spans.append((first, last))
    parts, end = [], 0
    for first, last in spans:
        parts += [text[end:first], WITHHELD]
        end = last
    return "".join([*parts, text[end:]])


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def first_line(text: str) -> str:
    """What a list says of a question."""
    return shorten(" ".join(text.split()), 160)
