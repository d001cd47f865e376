"""Plots as SVG text, for pages without scripts: series are classes, the style sheet colours them.

Each has a title and a description that says the numbers, since a picture cannot be read aloud.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from leaderboard.pages.text import visible

WIDTH, HEIGHT = 480, 264
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 14, 44
SERIES = 6  # colours in the style sheet; the dashes differ as well
LEGEND = 20  # height of a line of the legend

Point = tuple[float, float]


def pass_curve(curves: Mapping[str, Sequence[float]]) -> str:
    """pass@1 to pass@k in percent, one curve per name."""
    points = {
        name: [(float(k), value) for k, value in enumerate(curve, 1)]
        for name, curve in curves.items()
    }
    last = max((len(curve) for curve in curves.values()), default=1)
    ticks = [float(2**n) for n in range(last.bit_length())]
    if ticks[-1] != last:
        ticks.append(float(last))
    return _lines("pass-curve", "pass@k", points, ticks, "k samples", "% of questions solved")


def accuracy_by_turn(by_turn: Mapping[str, Sequence[float]]) -> str:
    """The share that would be right if the team stopped after its nth draft, in percent."""
    points = {
        name: [(float(n), value) for n, value in enumerate(values, 1)]
        for name, values in by_turn.items()
    }
    last = max((len(values) for values in by_turn.values()), default=1)
    ticks = [float(n) for n in range(1, last + 1, max(1, math.ceil(last / 8)))]
    title = "Accuracy by turn"
    return _lines("by-turn", title, points, ticks, "stopping after draft", "% right", log=False)


def tokens_by_agent(tokens: Mapping[str, Mapping[str, float]]) -> str:
    """Mean tokens of a conversation: agent → kind ("read", "written") → tokens; a bar for each."""
    kinds = list(dict.fromkeys(kind for of in tokens.values() for kind in of))
    bars = [(agent, kind, of[kind]) for agent, of in tokens.items() for kind in kinds if kind in of]
    most = max((count for _, _, count in bars), default=0.0) or 1.0
    left, right = 118, 66
    parts, y, last = [], float(TOP), ""
    for agent, kind, count in bars:
        if agent != last:
            y += 8 if last else 0
            parts.append(_text(left - 8, y + 12, _short(agent, 16), "end", "strong"))
            last = agent
        width = (WIDTH - left - right) * count / most
        number = kinds.index(kind) % SERIES
        parts.append(f'<rect class="fill s{number}" x="{left}" y="{y:g}" width="{width:.1f}" '
                     'height="16"/>')  # fmt: skip
        parts.append(_text(left + width + 6, y + 12.5, f"{count:,.0f}", "start"))
        y += 19
    height = y + 12 + LEGEND
    parts.append(_legend(kinds, y + 22, square=True))
    said = "; ".join(f"{agent} {kind} {count:,.0f}" for agent, kind, count in bars)
    return _svg("tokens", "Tokens per conversation by agent", said, height, parts)


# ---- how they are drawn ------------------------------------------------------------------------


def _lines(
    name: str,
    title: str,
    series: Mapping[str, Sequence[Point]],
    ticks: Sequence[float],
    x_label: str,
    y_label: str,
    log: bool = True,
) -> str:
    last = max(ticks[-1], *(x for points in series.values() for x, _ in points), 1.0)
    top = _ceiling([y for points in series.values() for _, y in points])

    def across(x: float) -> float:
        share = (math.log(x) / math.log(last) if log else (x - 1) / (last - 1)) if last > 1 else 0.5
        return LEFT + 8 + share * (WIDTH - LEFT - RIGHT - 16)

    def down(y: float) -> float:
        return HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - TOP)

    parts = []
    for step in range(5):
        y = top * step / 4
        parts.append(f'<path class="grid" d="M{LEFT} {down(y):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 6, down(y) + 4, f"{y:g}", "end"))
    for x in ticks:
        parts.append(_text(across(x), HEIGHT - BOTTOM + 18, f"{x:g}", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle"))
    beside = f"translate(11 {(HEIGHT - BOTTOM + TOP) / 2:g}) rotate(-90)"
    parts.append(_text(0, 0, y_label, "middle", turned=beside))
    said = []
    for number, (label, points) in enumerate(series.items()):
        places = [(across(x), down(y)) for x, y in points]
        kind = f"s{number % SERIES}"
        if len(places) > 1:
            way = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            parts.append(f'<path class="line {kind}" d="M{way}"/>')
        parts += [f'<circle class="fill {kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'
                  for x, y in places]  # fmt: skip
        said.append(f"{label}: " + ", ".join(f"{y:.1f} at {x:g}" for x, y in points))
    height = HEIGHT + (LEGEND if len(series) > 1 else 0)
    if len(series) > 1:
        parts.append(_legend(list(series), HEIGHT + 10))
    return _svg(name, title, "; ".join(said), height, parts)


def _ceiling(values: Sequence[float]) -> float:
    """The axis ends at 100 %, or where that would flatten everything, at a round number below."""
    most = max(values, default=100.0)
    return next((float(top) for top in (10, 20, 40, 60, 80) if most <= 0.95 * top), 100.0)


def _legend(names: Sequence[str], y: float, square: bool = False) -> str:
    room = (WIDTH - LEFT) / max(len(names), 1)
    parts = []
    for number, name in enumerate(names):
        x = LEFT + number * room
        kind = f"s{number % SERIES}"
        if square:
            box = f'x="{x:g}" y="{y - 9:g}" width="10" height="10"'
            parts.append(f'<rect class="fill {kind}" {box}/>')
        else:
            parts.append(f'<path class="line {kind}" d="M{x:g} {y - 4:g}h22"/>')
        parts.append(_text(x + (16 if square else 28), y, _short(name, int(room / 8)), "start"))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str, kind: str = "label", turned: str = "") -> str:
    place = f'transform="{turned}"' if turned else f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text class="{kind}" {place} text-anchor="{anchor}">{_safe(text)}</text>'


def _svg(name: str, title: str, said: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg class="plot" role="img" viewBox="0 0 {WIDTH} {height:g}" '
        f'aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{_safe(title)}</title>'
        f'<desc id="{name}-desc">{_safe(said)}</desc>{"".join(parts)}</svg>'
    )


def _safe(text: str) -> str:
    return escape(visible(text))


def _short(name: str, limit: int) -> str:
    return name if len(name) <= limit else f"{name[: max(limit - 1, 1)]}…"
