"""One self-contained HTML page with a sample of the conversations; it works from file://."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mas_envs.episodes.schema import Episode
from mas_envs.episodes.viewer.conversations import (
    LONGEST_TEXT,
    Case,
    conversation,
    pair,
    row,
    sampling_order,
)
from mas_envs.episodes.viewer.html_page import Cell, data_block, fill_page
from mas_envs.errors import UserError

MAX_EPISODES = 200
MAX_BYTES = 5_000_000
MAX_CASE_BYTES = 1_000_000
MAX_CASE_EVENTS = 2_500  # an event takes some 400 bytes even when its texts are short


def page(
    title: str,
    sections: Mapping[str, Sequence[Episode]],
    *,
    headline: Mapping[str, Mapping[str, Cell]] | None = None,
    notes: Sequence[str] = (),
    figures: Mapping[str, bytes] | None = None,
) -> str:
    """A page (HTML, under 5 MB in UTF-8) on which a person reads `sections` of episodes.

    Two or more sections ({"before": …, "after": …}) are paired by (task, sample) and shown side by
    side. More than 200 episodes, or more than fit, are shown as a sample that is stated as one and
    that depends only on task ids and sample numbers. `headline` is a table, row → column → cell:
    {"value", "low", "high"} in percent with its 95 % interval, a string, a number, or None for "no
    number". `notes` are plain paragraphs; `figures` maps a caption (also the text alternative) to
    a PNG. Raises `UserError` when there is no episode, and for a bad cell or figure.
    """
    if not any(map(len, sections.values())):
        raise UserError(f"no episodes to show in sections {list(sections)}; play some first")
    results: dict[str, Any] = {"headline": headline, "notes": notes, "figures": figures}
    bare = fill_page(title, "", "", **results)
    room = MAX_BYTES - 20_000 - len(bare.encode())
    return fill_page(title, *_episodes(sections, room), **results)


def _episodes(sections: Mapping[str, Sequence[Episode]], room: int) -> tuple[str, str]:
    """The data block of the page within `room` bytes, and the sentence that says what it holds."""
    cases = pair(list(sections.values()))
    chosen = {position: blocks for position, blocks in _chosen(cases, room)}
    rows, conversations = (
        zip(*(chosen[p] for p in sorted(chosen)), strict=True) if chosen else ((), ())
    )
    shown = {
        name: sum(cases[p].episodes[place] is not None for p in chosen)
        for place, name in enumerate(sections)
    }
    sizes = {name: len(episodes) for name, episodes in sections.items()}
    names = data_block([{"name": n, "shown": shown[n], "total": sizes[n]} for n in sizes])
    block = "\n".join(
        ('{"sections":', names, ',"cases":[', ",\n".join(rows), '],"conversations":[',
         ",\n".join(conversations), "]}")
    )  # fmt: skip
    return block, html.escape(_sentence(shown, sizes))


def _sentence(shown: Mapping[str, int], sizes: Mapping[str, int]) -> str:
    total = sum(sizes.values())
    if shown == sizes:
        return f"All {total:,} conversations." if total > 1 else "One conversation."
    parts = ", ".join(f"{shown[name]:,} of {size:,} {name}" for name, size in sizes.items())
    return (
        f"A sample of {sum(shown.values()):,} of {total:,} conversations ({parts}): the first "
        "samples of each question, questions in the order of a hash, whatever came out of them."
    )


def _chosen(cases: Sequence[Case], room: int) -> Iterator[tuple[int, tuple[str, str]]]:
    """Position and data blocks of the cases that fit, taken in `sampling_order`."""
    episodes = 0
    for position in sampling_order(cases):
        case = cases[position]
        episodes += sum(episode is not None for episode in case.episodes)
        blocks = _within(case, MAX_CASE_BYTES)
        if blocks is None:
            continue  # thousands of events: readable in the run folder, not here
        room -= sum(len(block.encode()) + 2 for block in blocks)
        if episodes > MAX_EPISODES or room < 0:
            return
        yield position, blocks


def _within(case: Case, size: int) -> tuple[str, str] | None:
    """Row and conversations of a case, texts shortened until they take at most `size` bytes."""
    if sum(len(e.events) for e in case.episodes if e is not None) > MAX_CASE_EVENTS:
        return None
    limit = LONGEST_TEXT
    while limit > 100:
        read = [None if e is None else conversation(e, limit) for e in case.episodes]
        block = data_block(read)
        if len(block.encode()) <= size:
            return data_block(row(case)), block
        limit //= 4
    return None
