"""One self-contained HTML page with a sample of the conversations; it works from file://.

What a model wrote is hostile until shown otherwise. It enters the page as JSON in a data block,
with every character that HTML could read escaped; the script shows it through `textContent` only;
and the content security policy allows this very script and style (by hash), pictures inside the
page, and nothing else: no network, no other script, no form.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

from mas_envs.episodes.plain import clean
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.viewer.conversations import (
    LONGEST_TEXT,
    Case,
    as_text,
    conversation,
    pair,
    row,
    sampling_order,
)
from mas_envs.errors import UserError

MAX_EPISODES = 200
MAX_BYTES = 5_000_000
MAX_CASE_BYTES = 1_000_000
MAX_CASE_EVENTS = 2_500  # an event takes some 400 bytes even when its texts are short
MAX_FIGURE_BYTES = 2_000_000

PNG = b"\x89PNG\r\n\x1a\n"
_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029\x7f"})

Cell = Mapping[str, Any] | str | float | None


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
    assets = resources.files(__package__)
    template, style, script = (
        assets.joinpath(f"page.{kind}").read_text(encoding="utf-8")
        for kind in ("html", "css", "js")
    )
    shown_figures = "".join(_figure(*pair) for pair in (figures or {}).items())
    if len(shown_figures) > MAX_FIGURE_BYTES:
        raise UserError(
            f"the figures take {len(shown_figures):,} bytes; at most {MAX_FIGURE_BYTES:,}"
        )
    text = {
        "title": html.escape(title),
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
        "headline": _table(headline) if headline else "",
        "notes": "".join(f"<p>{html.escape(note)}</p>\n" for note in notes),
        "figures": f'<div class="figures">{shown_figures}</div>' if shown_figures else "",
        "results": "" if headline or notes or figures else "hidden",
    }
    room = MAX_BYTES - 20_000 - sum(len(part.encode("utf-8", "replace")) for part in text.values())
    episodes, text["sample"] = _episodes(sections, room)
    return clean(Template(template).substitute(text, episodes=episodes))


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def data_block(value: Any) -> str:
    """JSON that no HTML parser can leave: `<`, `>`, `&`, U+2028, U+2029 as escapes."""
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).translate(_ESCAPES)


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


def _figure(caption: str, png: bytes) -> str:
    if not png.startswith(PNG):
        raise UserError(f"figure {caption!r} is not a PNG; save it with savefig(…, format='png')")
    source = base64.b64encode(png).decode()
    said = html.escape(caption)
    return (
        f'<figure><img alt="{said}" src="data:image/png;base64,{source}">'
        f"<figcaption>{said}</figcaption></figure>\n"
    )


def _table(headline: Mapping[str, Mapping[str, Cell]]) -> str:
    columns = list(dict.fromkeys(column for cells in headline.values() for column in cells))
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>'
        + "".join(_cell(cells.get(column), f"{name}, {column}") for column in columns)
        + "</tr>\n"
        for name, cells in headline.items()
    )
    return f"<table><thead><tr><td></td>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def _cell(cell: Cell, where: str) -> str:
    """A number with its interval, drawn on a scale of 0 to 100 %; anything else as text."""
    if not isinstance(cell, Mapping):
        said = (
            "no number" if cell is None else f"{cell:,}" if isinstance(cell, int) else as_text(cell)
        )
        return f"<td>{html.escape(said)}</td>"
    try:
        value, low, high = (float(cell[key]) for key in ("value", "low", "high"))
    except (KeyError, TypeError, ValueError):
        raise UserError(f"headline {where}: {cell!r}; it needs numbers value, low, high") from None
    return (
        f'<td><span class="number">{value:.1f} %</span> '
        f'<span class="interval">95 %: {low:.1f} – {high:.1f}</span>'
        '<svg viewBox="-1 0 102 8" aria-hidden="true" preserveAspectRatio="none">'
        '<rect class="scale" x="0" y="3" width="100" height="2"/>'
        f'<rect class="whisker" x="{low:.2f}" y="2.5" width="{max(high - low, 0.4):.2f}"'
        ' height="3"/>'
        f'<rect class="value" x="{value - 0.4:.2f}" y="0.5" width="0.8" height="7"/></svg></td>'
    )
