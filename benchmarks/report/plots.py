"""The plots of a report: one picture a question, a panel per suite, a colour per system.

    pass_curve             does sampling more help, and whom?
    accuracy_by_turn       does another round help?
    verifier               how often is the verifier right?
    searches               how many searches does a question take?
    tokens                 who reads and writes how much?

Needs matplotlib, loaded when something is drawn.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.diagnostics import Diagnosis
from benchmarks.metrics import Score
from mas_envs.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0b5cad", "#c2410c", "#0b7a5c", "#8a2fc2", "#a52a68", "#6b6b00")
STYLES, MARKERS = ("-", "--", "-.", ":"), "osD^vP"
ACROSS, DPI = 3, 100  # panels in a row
WIDTH, HEIGHT = 4.2, 3.4  # inches of a panel
LONGEST_NAME = 40
MISSING = "plots are left out, they need matplotlib: pip install 'mas-gym[plots]'"

Curves = Mapping[str, Mapping[str, Sequence[Score]]]
"""Suite → system → pass@k for k = 1, 2, …"""
Diagnoses = Mapping[str, Mapping[str, Diagnosis]]
"""Suite → system → what its team did."""


def needs_matplotlib() -> str | None:
    """Why there are no plots, or None where there can be."""
    return None if find_spec("matplotlib") else MISSING


def draw(curves: Curves, found: Diagnoses, order: Sequence[str]) -> dict[str, tuple[str, bytes]]:
    """Name → (caption, PNG) of every plot that has something to show.

    `order` has all systems: it decides their colours. Raises `UserError` without matplotlib.
    """
    if why := needs_matplotlib():
        raise UserError(why)
    plots = {
        "pass_curve": (
            "pass@k by k, with 95 % intervals over questions", _pass_curves(curves, order)
        ),
        "accuracy_by_turn": (
            "Percent right had the team stopped after the n-th draft, with 95 % intervals",
            _rounds(found, order),
        ),
        "verifier": ("The verifier's verdicts by what was true; percent of each column",
                     _confusion(found)),
        "searches": ("Searches per episode, percent of the episodes", _searches(found, order)),
        "tokens": ("Tokens per episode by agent, over the suites that it plays in",
                   _tokens(found, order)),
    }  # fmt: skip
    return {name: (caption, _png(figure)) for name, (caption, figure) in plots.items() if figure}


# ---- the pictures ------------------------------------------------------------------------------


def _pass_curves(curves: Curves, order: Sequence[str]) -> Figure | None:
    shown = {suite: systems for suite, systems in curves.items() if systems}
    if not shown:
        return None
    figure, panels = _panels("pass@k", list(shown), "k samples", "percent of questions solved")
    for axes, systems in zip(panels, shown.values(), strict=False):
        ks: list[int] = []
        for name, curve in systems.items():
            ks = list(range(1, len(curve) + 1))
            _band(
                axes, order.index(name), name, ks, [(one.value, one.low, one.high) for one in curve]
            )
        if len(ks) > 2:
            axes.set_xscale("log", base=2)
        ticks = [k for k in ks if k & (k - 1) == 0]
        axes.set_xticks(ticks, list(map(str, ticks)))
        axes.minorticks_off()
        axes.set_ylim(0, 104)
    return _with_key(figure)


def _rounds(found: Diagnoses, order: Sequence[str]) -> Figure | None:
    shown = _having(found, "rounds")
    if not shown:
        return None
    figure, panels = _panels(
        "Accuracy by turn", list(shown), "the team stops after draft n", "percent right"
    )
    for axes, systems in zip(panels, shown.values(), strict=False):
        last = 1
        for name, diagnosis in systems.items():
            rounds = diagnosis.rounds or []
            points = [
                (one.stop_after.value, one.stop_after.low, one.stop_after.high) for one in rounds
            ]
            _band(axes, order.index(name), name, [one.round for one in rounds], points)
            last = max(last, len(rounds))
        axes.set_xticks(range(1, last + 1))
        axes.set_xlim(0.7, last + 0.3)
        axes.set_ylim(0, 104)
    return _with_key(figure)


def _confusion(found: Diagnoses) -> Figure | None:
    """A panel per system; verdicts of all suites that ask the verifier the same are added up."""
    matrices: dict[str, dict[str, dict[str, int]]] = {}
    for systems in _having(found, "verdicts").values():
        for name, diagnosis in systems.items():
            assert diagnosis.verdicts is not None
            given = diagnosis.verdicts.matrix
            title = name if "approve" in given else f"{name} (search)"
            whole = matrices.setdefault(title, {})
            for verdict, states in given.items():
                row = whole.setdefault(verdict, dict.fromkeys(states, 0))
                for state, count in states.items():
                    row[state] += count
    matrices = {name: matrix for name, matrix in matrices.items() if _total(matrix)}
    if not matrices:
        return None
    figure, panels = _panels("The verifier's verdicts", list(matrices), "", "verdict")
    for axes, matrix in zip(panels, matrices.values(), strict=False):
        _matrix(axes, matrix)
    return figure


def _matrix(axes: Axes, matrix: Mapping[str, Mapping[str, int]]) -> None:
    states = list(next(iter(matrix.values())))
    verdicts = [v for v, row in matrix.items() if v != "invalid" or any(row.values())]
    counts = np.array([[matrix[verdict][state] for state in states] for verdict in verdicts])
    shares = 100 * counts / np.maximum(counts.sum(axis=0), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=130, aspect="auto")
    for (row, column), share in np.ndenumerate(shares):
        there = counts[:, column].any()
        said = f"{share:.0f} %\n{counts[row, column]:,}" if there else "–"
        colour = "white" if share > 90 else "#1b1f24"
        axes.text(column, row, said, ha="center", va="center", color=colour, fontsize=11)
    known = "" if "sufficient" in states else " draft"
    total = counts.sum(axis=0)
    axes.set_xticks(
        range(len(states)),
        [f"{state}{known}\n(of {n:,})" for state, n in zip(states, total, strict=True)],
    )
    axes.set_yticks(range(len(verdicts)), verdicts)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(False)


def _searches(found: Diagnoses, order: Sequence[str]) -> Figure | None:
    shown = _having(found, "searches")
    if not shown:
        return None
    figure, panels = _panels("Searches", list(shown), "searches in an episode",
                             "percent of episodes")  # fmt: skip
    for axes, systems in zip(panels, shown.values(), strict=False):
        most = 0
        for place, (name, diagnosis) in enumerate(systems.items()):
            assert diagnosis.searches is not None
            counts = {one.searches: one.episodes for one in diagnosis.searches.by_count}
            width = 0.8 / len(systems)
            at = [made + (place + 0.5) * width - 0.4 for made in counts]
            shares = [100 * count / diagnosis.episodes for count in counts.values()]
            axes.bar(at, shares, width * 0.92, color=_colour(order, name), label=_short(name))
            axes.axvline(diagnosis.searches.mean, color=_colour(order, name), linewidth=1.5,
                         linestyle="--")  # fmt: skip
            most = max(most, *counts)
        axes.set_xticks(range(0, most + 1, max(1, math.ceil(most / 10))))
        axes.set_xlim(-0.6, most + 0.6)
        axes.set_ylim(0, 104)
    return _with_key(figure, "dashed: mean")


def _tokens(found: Diagnoses, order: Sequence[str]) -> Figure | None:
    """Bars of each agent, by system: what it reads and what it writes."""
    means = {kind: _tokens_by_agent(found, f"{kind}_tokens") for kind in ("prompt", "response")}
    if not any(means["response"].values()):
        return None
    titles = {"prompt": "read (prompts)", "response": "written (responses)"}
    shown = {titles[kind]: by_system for kind, by_system in means.items()
             if any(by_system.values())}  # fmt: skip
    figure, panels = _panels("Tokens by agent", list(shown), "", "tokens per episode (mean)")
    agents = sorted({agent for kind in means.values() for one in kind.values() for agent in one})
    for axes, by_system in zip(panels, shown.values(), strict=False):
        systems = [name for name, by_agent in by_system.items() if by_agent]
        width = 0.8 / len(systems)
        for place, name in enumerate(systems):
            values = [by_system[name].get(agent, 0.0) for agent in agents]
            at = [n + (place + 0.5) * width - 0.4 for n in range(len(agents))]
            axes.bar(at, values, width * 0.92, color=_colour(order, name), label=_short(name))
        axes.set_xticks(range(len(agents)), list(map(_short, agents)))
        axes.set_xlim(-0.6, len(agents) - 0.4)
    return _with_key(figure)


def _tokens_by_agent(found: Diagnoses, kind: str) -> dict[str, dict[str, float]]:
    """System → agent → mean tokens per episode, over the suites that it plays in and counts."""
    tokens: dict[str, dict[str, int]] = {}
    episodes: dict[str, dict[str, int]] = {}
    for systems in found.values():
        for name, diagnosis in systems.items():
            counts = {agent: getattr(one, kind) for agent, one in diagnosis.agents.items()}
            if None in counts.values():
                continue
            whole, played = tokens.setdefault(name, {}), episodes.setdefault(name, {})
            for agent, count in counts.items():
                whole[agent] = whole.get(agent, 0) + count
                played[agent] = played.get(agent, 0) + diagnosis.episodes
    return {
        name: {agent: count / episodes[name][agent] for agent, count in by_agent.items()}
        for name, by_agent in tokens.items()
    }


# ---- how they look -----------------------------------------------------------------------------


def _panels(what: str, titles: Sequence[str], x: str, y: str) -> tuple[Figure, Iterator[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(len(titles), ACROSS)
    down = math.ceil(len(titles) / across)
    size = (max(WIDTH * across, 5.6), HEIGHT * down + 0.7)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)  # no display, no global state of pyplot
    figure.suptitle(what, x=0.01, ha="left", fontsize=14, fontweight="bold")
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for place, axes in enumerate(panels):
        if place >= len(titles):
            axes.remove()
            continue
        axes.set_title(_short(titles[place]), loc="left", fontsize=12)
        axes.set_xlabel(x)
        axes.set_ylabel(y if place % across == 0 else "")
        axes.grid(True, axis="y", color="#e3e6ea", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, iter(panels[: len(titles)])


def _band(
    axes: Axes, place: int, name: str, at: Sequence[int], points: Sequence[Sequence[Any]]
) -> None:
    """A curve and its interval."""
    colour = COLOURS[place % len(COLOURS)]
    values, low, high = zip(*points, strict=True)
    axes.plot(at, values, STYLES[place % 4], marker=MARKERS[place % 6], markersize=4.5,
              color=colour, linewidth=2, label=_short(name))  # fmt: skip
    axes.fill_between(at, low, high, color=colour, alpha=0.13, linewidth=0)
    if len(at) == 1:  # a band of one point cannot be seen
        axes.errorbar(at, values, [[values[0] - low[0]], [high[0] - values[0]]],
                      color=colour, capsize=4)  # fmt: skip


def _colour(order: Sequence[str], name: str) -> str:
    """Each system keeps its colour through all plots."""
    return COLOURS[order.index(name) % len(COLOURS)]


def _with_key(figure: Figure, title: str | None = None) -> Figure:
    """One key below all panels."""
    known = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(known.values(), known, loc="outside lower left", ncols=3, title=title,
                  frameon=False, alignment="left", handlelength=3.2)  # fmt: skip
    return figure


def _having(found: Diagnoses, part: str) -> dict[str, dict[str, Diagnosis]]:
    """The diagnoses that have a part, suites without any left out."""
    having = {
        suite: {name: one for name, one in systems.items() if getattr(one, part)}
        for suite, systems in found.items()
    }
    return {suite: systems for suite, systems in having.items() if systems}


def _total(matrix: Mapping[str, Mapping[str, int]]) -> int:
    return sum(count for row in matrix.values() for count in row.values())


def _short(name: str) -> str:
    """A name as matplotlib shows it: not too long, and no formula of it."""
    text = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return text.replace("$", r"\$")


def _png(figure: Figure) -> bytes:
    written = io.BytesIO()
    figure.savefig(written, format="png", metadata={"Software": None})
    return written.getvalue()
