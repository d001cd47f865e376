"""The plots of a run: team reward; own reward, gradient norm and inflation factor per agent; and,
where they were recorded, the evaluations, response lengths, invalid turns, entropy and KL.

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
    from matplotlib.figure import Figure

COLOURS = ("#0b5cad", "#c2410c", "#0b7a5c", "#8a2fc2", "#a52a68", "#6b6b00")
INCHES, DPI = (9.0, 4.5), 100  # 900 × 450 pixels
SMOOTHED = 3  # steps; with fewer a running mean says nothing
LOG_RANGE = 10.0  # a larger ratio of largest to smallest value gets a logarithmic axis


class Line(NamedTuple):
    """One curve: its name and its (step, value) points, gaps (None, NaN) left out."""

    name: str
    steps: list[float]
    values: list[float]


OF_AGENTS = {
    "response_tokens": ("Response length per agent", "tokens per turn (mean)"),
    "invalid_share": ("Invalid turns per agent", "share of its turns that do not parse"),
}
OF_MODELS = {
    "entropy": ("Entropy per model", "nats per token (mean)"),
    "kl_reference": ("KL to the weights it began with", "nats per token (mean)"),
}
"""Plots that are drawn where a run has the values: key of the metrics → title and unit."""


def plot_run(metrics: Sequence[Mapping[str, Any]], folder: str | Path) -> list[Path]:
    """Draw `reward.png`, `own_reward.png`, `gradient_norm.png`, `inflation.png` into `folder`, and
    of `evaluation.png` and what `OF_AGENTS` and `OF_MODELS` name those that have a value.

    `metrics` has one mapping per training step, as the run's metrics JSONL: "step", "reward",
    optionally "accuracy" and "eval", "agents": {role: {"grad_norm", …}} and "models". Values that
    are missing, None, NaN or infinite are left out. Raises `UserError` when there is no step.
    """
    if not metrics:
        raise UserError(f"no training steps to plot in {folder}; train at least one step first")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    reward = line(metrics, "reward", lambda row: row.get("reward"))
    accuracy = line(metrics, "accuracy (share right)", lambda row: row.get("accuracy"))
    own = _each(metrics, "agents", "own_reward")
    norms = _each(metrics, "agents", "grad_norm")
    inflation = _each(metrics, "agents", "inflation")
    found = [
        _draw(folder / "reward.png", "Team reward", "mean reward per episode",
              [reward, accuracy] if accuracy.values not in ([], reward.values) else [reward]),
        _draw(folder / "own_reward.png", "Own reward per agent (penalty, shaping, own rewards)",
              "mean per turn, without the team's", own),
        _draw(folder / "gradient_norm.png", "Gradient norm per agent",
              "L2 norm of the agent's gradient", norms),
        _draw(folder / "inflation.png", "Inflation factor under the team's statistics (own: 1)",
              "(σₖ² + (μₖ − μ)²) / σ²", inflation, reference=1.0),
    ]  # fmt: skip
    if scores := _scores(metrics):
        found.append(_draw_scores(folder / "evaluation.png", scores))
    for section, plots in (("agents", OF_AGENTS), ("models", OF_MODELS)):
        for key, (title, unit) in plots.items():
            if lines := [one for one in _each(metrics, section, key) if one.values]:
                found.append(_draw(folder / f"{key}.png", title, unit, lines))
    return found


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


def _each(metrics: Sequence[Mapping[str, Any]], section: str, key: str) -> list[Line]:
    """A line for each agent or each model, in the order of their first step."""

    def reader(name: str) -> Callable[[Mapping[str, Any]], Any]:
        return lambda row: ((row.get(section) or {}).get(name) or {}).get(key)

    names = dict.fromkeys(name for row in metrics for name in row.get(section) or {})
    return [line(metrics, name, reader(name)) for name in names]


def _scores(metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, Any]]]:
    """ "avg@16" → (step, its score with an interval) of each evaluation that has one."""
    found: dict[str, list[tuple[float, Any]]] = {}
    for position, row in enumerate(metrics):
        for name, score in (row.get("eval") or {}).items():
            if name.startswith(("avg@", "pass@")) and score is not None:
                found.setdefault(name, []).append((float(row.get("step", position)), score))
    return found


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
    figure, axes = _figure()
    log = reference is not None and needs_log_axis([v for one in lines for v in one.values])
    for position, one in enumerate(lines):
        _curve(axes, one, COLOURS[position % len(COLOURS)], ("-", "--", "-.", ":")[position % 4])
    if reference is not None:
        axes.axhline(reference, color="#555555", linewidth=1, zorder=1)
    if log:
        _logarithmic(axes)
    if not any(one.values for one in lines):
        axes.text(0.5, 0.5, "nothing was recorded", transform=axes.transAxes, ha="center", size=13)
    smooth = any(len(one.values) >= SMOOTHED for one in lines)
    key = "faint: each step; bold: running mean" if smooth else None
    _dress(axes, title, unit + (" (log scale)" if log else ""), lines, key)
    figure.savefig(path, format="png", metadata={"Software": None})
    return path


def _draw_scores(path: Path, scores: Mapping[str, Sequence[tuple[float, Any]]]) -> Path:
    figure, axes = _figure()
    lines = []
    for position, (name, points) in enumerate(scores.items()):
        steps = [step for step, _ in points]
        values = [score["value"] for _, score in points]
        below = [score["value"] - score["low"] for _, score in points]
        above = [score["high"] - score["value"] for _, score in points]
        axes.errorbar(
            steps, values, yerr=[below, above], marker="o", capsize=4, linewidth=2,
            color=COLOURS[position % len(COLOURS)], label=name,
        )  # fmt: skip
        lines.append(Line(name, steps, values))
    axes.set_ylim(0, 104)  # a marker at 100 is seen whole
    key = "with 95 % intervals over questions"
    _dress(axes, "Evaluation on the dev tasks", "percent right", lines, key)
    axes.set_xlabel("training steps done", fontsize=12)
    figure.savefig(path, format="png", metadata={"Software": None})
    return path


def _figure() -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)  # no display, no global state of pyplot
    return figure, figure.add_subplot()


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


def _dress(axes: Axes, title: str, unit: str, lines: Sequence[Line], key: str | None) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, fontsize=14, loc="left", fontweight="bold")
    axes.set_xlabel("training step", fontsize=12)
    axes.set_ylabel(unit, fontsize=12)
    axes.tick_params(labelsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, steps=[1, 2, 5, 10]))
    axes.grid(True, color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    steps = [step for one in lines for step in one.steps]
    if steps and min(steps) == max(steps):
        axes.set_xlim(steps[0] - 0.5, steps[0] + 0.5)
    if any(one.values for one in lines):
        axes.legend(fontsize=11, title=key, title_fontsize=10, framealpha=0.9, alignment="left")
