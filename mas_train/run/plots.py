"""The plots of a run: team reward; own reward, gradient norm and inflation factor per agent.

The reader wants to know: did the team learn, and did one agent's gradients explode or starve on
the way? The raw values are drawn faint, their running mean on top. Needs matplotlib (in the extra
`train`), loaded when a plot is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mas_envs.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0b5cad", "#c2410c", "#0b7a5c", "#8a2fc2", "#a52a68", "#6b6b00")
INCHES, DPI = (9.0, 4.5), 100  # 900 × 450 pixels
SMOOTHED = 3  # steps; with fewer a running mean says nothing
LOG_RANGE = 10.0  # a larger ratio of largest to smallest value gets a logarithmic axis


class Line(NamedTuple):
    """One curve: its name and its (step, value) points, gaps (None, NaN) left out."""

    name: str
    steps: list[float]
    values: list[float]


def plot_run(metrics: Sequence[Mapping[str, Any]], folder: str | Path) -> list[Path]:
    """Draw `reward.png`, `own_reward.png`, `gradient_norm.png`, `inflation.png` into `folder`.

    `metrics` has one mapping per training step, as the run's metrics JSONL: "step", "reward",
    optionally "accuracy", and "agents": {role: {"grad_norm", …}}. Values that are
    missing, None, NaN or infinite are left out. Raises `UserError` when there is no step.
    """
    if not metrics:
        raise UserError(f"no training steps to plot in {folder}; train at least one step first")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    roles = list(dict.fromkeys(role for row in metrics for role in row.get("agents") or {}))
    reward = line(metrics, "reward", lambda row: row.get("reward"))
    accuracy = line(metrics, "accuracy (share right)", lambda row: row.get("accuracy"))
    return [
        _draw(folder / "reward.png", "Team reward", "mean reward per episode",
              [reward, accuracy] if accuracy.values not in ([], reward.values) else [reward]),
        _draw(folder / "own_reward.png", "Own reward per agent (penalty, shaping, own rewards)",
              "mean per turn, without the team's", _per_agent(metrics, roles, "own_reward")),
        _draw(folder / "gradient_norm.png", "Gradient norm per agent",
              "L2 norm of the agent's gradient", _per_agent(metrics, roles, "grad_norm")),
        _draw(folder / "inflation.png", "Inflation factor per agent (1 = agent-wise normalisation)",
              "(σₖ² + (μₖ − μ)²) / σ²", _per_agent(metrics, roles, "inflation"), reference=1.0),
    ]  # fmt: skip


def line(
    metrics: Sequence[Mapping[str, Any]], name: str, read: Callable[[Mapping[str, Any]], Any]
) -> Line:
    """The finite values of `read(row)` by step; a row without "step" counts from its position."""
    points = [
        (float(row.get("step", position)), float(value))
        for position, row in enumerate(metrics)
        if (value := read(row)) is not None and math.isfinite(value)
    ]
    return Line(name, [step for step, _ in points], [value for _, value in points])


def _per_agent(metrics: Sequence[Mapping[str, Any]], roles: Sequence[str], key: str) -> list[Line]:
    def reader(role: str) -> Callable[[Mapping[str, Any]], Any]:
        return lambda row: ((row.get("agents") or {}).get(role) or {}).get(key)

    return [line(metrics, role, reader(role)) for role in roles]


def running_mean(values: Sequence[float]) -> list[float]:
    """Mean over a centred window of about a sixth of the run (at least 3 steps), cut off at the
    ends of the run.
    """
    half = max(1, len(values) // 12)
    return [float(np.mean(values[max(0, at - half) : at + half + 1])) for at in range(len(values))]


def needs_log_axis(values: Sequence[float]) -> bool:
    """Is the range of the positive values more than tenfold? (Zero has no place on a log axis.)"""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) > LOG_RANGE * min(positive)


def _draw(
    path: Path, title: str, unit: str, lines: Sequence[Line], reference: float | None = None
) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)  # no display, no global state of pyplot
    axes = figure.add_subplot()
    log = reference is not None and needs_log_axis([v for one in lines for v in one.values])
    for position, one in enumerate(lines):
        _curve(axes, one, COLOURS[position % len(COLOURS)], ("-", "--", "-.", ":")[position % 4])
    if reference is not None:
        axes.axhline(reference, color="#555555", linewidth=1, zorder=1)
    if log:
        _logarithmic(axes)
    if not any(one.values for one in lines):
        axes.text(0.5, 0.5, "nothing was recorded", transform=axes.transAxes, ha="center", size=13)
    _dress(axes, title, unit + (" (log scale)" if log else ""), lines)
    figure.savefig(path, format="png", metadata={"Software": None})
    return path


def _curve(axes: Axes, one: Line, colour: str, style: str) -> None:
    if len(one.values) < SMOOTHED:
        axes.plot(one.steps, one.values, style, marker="o", color=colour, label=one.name)
        return
    axes.plot(one.steps, one.values, style, color=colour, alpha=0.28, linewidth=1.2)
    axes.plot(
        one.steps, running_mean(one.values), style, color=colour, linewidth=2.4, label=one.name
    )


def _logarithmic(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log", nonpositive="mask")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _dress(axes: Axes, title: str, unit: str, lines: Sequence[Line]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, fontsize=14, loc="left", fontweight="bold")
    axes.set_xlabel("training step", fontsize=12)
    axes.set_ylabel(unit, fontsize=12)
    axes.tick_params(labelsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    axes.grid(True, color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    steps = [step for one in lines for step in one.steps]
    if steps and min(steps) == max(steps):
        axes.set_xlim(steps[0] - 1, steps[0] + 1)
    if any(one.values for one in lines):
        smooth = any(len(one.values) >= SMOOTHED for one in lines)
        key = "faint: each step; bold: running mean" if smooth else None
        axes.legend(fontsize=11, title=key, title_fontsize=10, framealpha=0.9, alignment="left")
