"""What the demo shows: the table's numbers, where the gain comes from, plots and a page."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from mas_envs import Episode
from mas_envs.episodes.metrics import summary
from mas_envs.episodes.viewer import page
from mas_envs.files import whole_file
from mas_envs.grading import grade_math
from mas_train.config import Config
from mas_train.run.metrics_log import read_metrics
from mas_train.run.plots import plot_run


def report(config: Config, before: Sequence[Episode], after: Sequence[Episode]) -> dict[str, Any]:
    """Write what a person wants to see of the run; returns the summary."""
    k = config.eval.samples
    whole: dict[str, Any] = {
        "before": summary(before, k),
        "after": summary(after, k),
        "gain": split_gain(before, after),
        "verifier": {"before": verifier_record(before), "after": verifier_record(after)},
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
    html = page(
        f"mas-gym {config.run.name}",
        {"before": before, "after": after},
        headline=dict(headline_rows(whole, k)),
        notes=[
            f"{whole['before']['questions']} held-out problems, {k} samples each at "
            f"temperature {config.eval.temperature}, top-p {config.eval.top_p}; "
            f"{config.train.steps} steps of {config.estimator.preset} in between.",
            *remarks(whole, k),
        ],
        figures={
            f"{path.stem.replace('_', ' ')} by training step": path.read_bytes() for path in figures
        },
    )
    for name, content in (("index.html", html), ("summary.json", json.dumps(whole, indent=1))):
        with whole_file(config.folder / name) as file:
            file.write_text(content, encoding="utf-8")
    return whole


def headline_rows(whole: dict[str, Any], k: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """("level 1, before", {"avg@16": score, "pass@16": score}), …: all first, then by level."""
    rows = {"all": whole, **{f"level {n}": level for n, level in whole["levels"].items()}}
    for name, row in rows.items():
        for when in ("before", "after"):
            scores = {f"{metric}@{k}": row[when][f"{metric}@{k}"] for metric in ("avg", "pass")}
            yield f"{name}, {when}", scores


def remarks(whole: dict[str, Any], k: int) -> list[str]:
    """What the table does not say: where the gain comes from, and what the verifier is worth."""
    gain, records = whole["gain"], whole["verifier"]
    caught = [f"{records[when]['wrong_rejected']:.0f} %" for when in ("before", "after")]
    passed = [f"{records[when]['right_approved']:.0f} %" for when in ("before", "after")]
    return [
        f"Of the {gain['total']:+.1f} points of avg@{k}, {gain['correctness']:+.1f} are "
        f"correctness and {gain['format']:+.1f} format (a readable answer at all).",
        f"The verifier rejects {caught[0]} of wrong drafts before and {caught[1]} after; it "
        f"approves {passed[0]} of right ones before and {passed[1]} after.",
    ]


def verifier_record(episodes: Sequence[Episode]) -> dict[str, float]:
    """How the verifier judged: percent of wrong drafts rejected and of right drafts approved.

    `wrong_drafts` and `right_drafts` count what there was to judge; a percentage of nothing is 0.
    """
    verdicts: dict[bool, list[str]] = {True: [], False: []}
    for episode in episodes:
        drafts = [turn for turn in episode.turns if turn.role == "solver"]
        # The n-th draft is the one that the n-th verdict is about.
        for draft, verdict in zip(drafts, episode.info["verdicts"], strict=False):
            verdicts[grade_math(draft.text, episode.gold).correct is True].append(verdict)
    wrong, right = verdicts[False], verdicts[True]
    return {
        "wrong_drafts": len(wrong),
        "wrong_rejected": 100 * wrong.count("reject") / max(len(wrong), 1),
        "right_drafts": len(right),
        "right_approved": 100 * right.count("approve") / max(len(right), 1),
    }


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
