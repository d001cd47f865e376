"""What the demo shows: the table's numbers, where the gain comes from, plots and a page."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from mas_envs import Episode
from mas_envs.episodes.metrics import summary
from mas_envs.episodes.viewer import page
from mas_envs.files import whole_file
from mas_train.config import Config
from mas_train.metrics_log import read_metrics
from mas_train.plots import plot_run


def report(config: Config, before: Sequence[Episode], after: Sequence[Episode]) -> dict[str, Any]:
    """Write what a person wants to see of the run; returns the summary."""
    k = config.eval.samples
    whole: dict[str, Any] = {
        "before": summary(before, k),
        "after": summary(after, k),
        "gain": split_gain(before, after),
        "levels": {
            str(level): {"before": summary(old, k), "after": summary(new, k)}
            for (level, old), new in zip(
                by_level(before).items(), by_level(after).values(), strict=True
            )
        },
        "estimator": config.estimator.preset,
        "models": len(config.models),
        "steps": config.train.steps,
        "seed": config.run.seed,
    }
    figures = plot_run(read_metrics(config.folder / "metrics.jsonl"), config.folder / "plots")
    gain = whole["gain"]
    html = page(
        f"mas-gym demo: {config.run.name}",
        {"before": before, "after": after},
        headline={
            when: {f"{metric}@{k}": whole[when][f"{metric}@{k}"] for metric in ("avg", "pass")}
            for when in ("before", "after")
        },
        notes=[
            f"{len({episode.task for episode in before})} held-out problems, {k} samples each at "
            f"temperature {config.eval.temperature}, top-p {config.eval.top_p}; "
            f"{config.train.steps} steps of {config.estimator.preset} in between.",
            f"The gain of {gain['total']:.1f} points of avg@{k} consists of "
            f"{gain['correctness']:.1f} by correctness and {gain['format']:.1f} by format.",
        ],
        figures={
            f"{path.stem.replace('_', ' ')} by training step": path.read_bytes() for path in figures
        },
    )
    for name, content in (("index.html", html), ("summary.json", json.dumps(whole, indent=1))):
        with whole_file(config.folder / name) as file:
            file.write_text(content, encoding="utf-8")
    return whole


def by_level(episodes: Sequence[Episode]) -> dict[int, list[Episode]]:
    """Episodes by the difficulty of their problem, easiest first."""
    levels: dict[int, list[Episode]] = defaultdict(list)
    for episode in episodes:
        levels[episode.meta["level"]].append(episode)
    return dict(sorted(levels.items()))


def split_gain(before: Sequence[Episode], after: Sequence[Episode]) -> dict[str, float]:
    """The gain of avg@k in points, split into format and correctness.

    With F the share of final drafts that hold a readable answer and C the share of those that are
    right, avg = F·C; the gain is (F₁ - F₀)·C₀ by format and F₁·(C₁ - C₀) by correctness.
    """

    def shares(episodes: Sequence[Episode]) -> tuple[float, float]:
        grades = [episode.grade for episode in episodes if episode.grade is not None]
        readable = [grade for grade in grades if grade.status == "ok"]
        right = sum(grade.correct is True for grade in readable)
        return len(readable) / max(len(grades), 1), right / max(len(readable), 1)

    (f0, c0), (f1, c1) = shares(before), shares(after)
    return {
        "total": 100 * (f1 * c1 - f0 * c0),
        "format": 100 * (f1 - f0) * c0,
        "correctness": 100 * f1 * (c1 - c0),
    }
