"""The page that both forms of the viewer share: results, reader, script, style and policy.

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
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

from mas_envs.episodes.plain import clean
from mas_envs.episodes.viewer.conversations import as_text
from mas_envs.errors import UserError

MAX_FIGURE_BYTES = 2_000_000
WIDE_PIXELS = 1000  # a wider figure has a row of its own

PNG = b"\x89PNG\r\n\x1a\n"
_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029\x7f"})

Cell = Mapping[str, Any] | str | float | None


def fill_page(
    title: str,
    episodes: str,
    sample: str,
    scripts: Sequence[str] = (),
    *,
    headline: Mapping[str, Mapping[str, Cell]] | None = None,
    notes: Sequence[str] = (),
    figures: Mapping[str, bytes] | None = None,
) -> str:
    """The page around a data block (`episodes`) and the sentence that says what it holds (HTML).

    `scripts` are files that stand before the reader's in the one script of the page; with them, the
    page may load scripts that this one asks for. Raises `UserError` for a bad cell or figure.
    """
    assets = resources.files(__package__)
    template, style, *parts = (
        assets.joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html", "page.css", "text.js", *scripts, "page.js")
    )
    script = "".join(parts)
    shown_figures = "".join(_figure(*pair) for pair in (figures or {}).items())
    if len(shown_figures) > MAX_FIGURE_BYTES:
        raise UserError(
            f"the figures take {len(shown_figures):,} bytes; at most {MAX_FIGURE_BYTES:,}"
        )
    trusted = f"'{_hash(script)}'" + (" 'strict-dynamic'" if scripts else "")
    text = {
        "title": html.escape(title),
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src {trusted}; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
        "headline": _table(headline) if headline else "",
        "notes": "".join(f"<p>{html.escape(note)}</p>\n" for note in notes),
        "figures": f'<div class="figures">{shown_figures}</div>' if shown_figures else "",
        "results": "" if headline or notes or figures else "hidden",
        "sample": sample,
    }
    return clean(Template(template).substitute(text, episodes=episodes))


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def data_block(value: Any) -> str:
    """JSON that no HTML parser can leave: `<`, `>`, `&`, U+2028, U+2029 as escapes."""
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).translate(_ESCAPES)


def _figure(caption: str, png: bytes) -> str:
    if not png.startswith(PNG):
        raise UserError(f"figure {caption!r} is not a PNG; save it with savefig(…, format='png')")
    source = base64.b64encode(png).decode()
    said = html.escape(caption)
    wide = ' class="wide"' if int.from_bytes(png[16:20]) > WIDE_PIXELS else ""
    return (
        f'<figure{wide}><img alt="{said}" src="data:image/png;base64,{source}">'
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
