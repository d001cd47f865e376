"""`mas-train demo`: measure a small team, train it, measure it again, and show what changed."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from mas_envs import Episode, EpisodeWriter, load_tasks
from mas_envs.console import progress
from mas_envs.episodes.metrics import summary
from mas_envs.errors import UserError
from mas_envs.rollout import rollout
from mas_train.config import Config, resolve
from mas_train.loop import make_env, train
from mas_train.metrics_log import headline, read_metrics
from mas_train.stopping import StopSignal
from mas_train.team import Team

CONFIG = Path(__file__).with_name("demo.yaml")


def demo_config(
    estimator: str = "drmas",
    shared: bool = False,
    seed: int = 0,
    steps: int | None = None,
    overrides: Sequence[str] = (),
) -> Config:
    """The demo's configuration with the comparisons the command line offers.

    The run's name tells what differs from the plain demo, so that comparisons stand side by side.
    """
    tree = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    name = "demo" + (f"-{estimator}" if estimator != "drmas" else "")
    name += ("-shared" if shared else "") + (f"-seed{seed}" if seed else "")
    tree["run"] |= {"name": name, "seed": seed}
    tree["estimator"]["preset"] = estimator
    if steps is not None:
        tree["train"]["steps"] = steps
    if shared:
        tree["models"] = {"team": tree["models"]["solver"]}
        for agent in tree["agents"].values():
            agent["model"] = "team"
    return resolve(tree, overrides, where=str(CONFIG.name))


def run_demo(config: Config) -> dict[str, Any]:
    """Before, training, after; writes summary.json, plots and index.html; returns the summary.

    An earlier demo in the same folder is replaced; a folder that holds anything else is not.
    """
    clear_earlier_demo(config.folder)
    tasks = load_tasks(**config.tasks.dev)
    chosen = len(tasks) if config.eval.tasks is None else min(config.eval.tasks, len(tasks))
    before = measure(config, "before", chosen)
    with progress(config.run.name, config.train.steps, unit="steps") as bar:
        train(config, report=lambda metrics: bar.advance(1, note=headline(metrics)))
    after = measure(config, "after", chosen)
    return report(config, before, after)


def clear_earlier_demo(folder: Path) -> None:
    """Remove what an earlier demo left. Raises `UserError` if the folder is something else."""
    if not folder.exists():
        return
    known = {"config.yaml", "metrics.jsonl", "episodes", "checkpoints", "tensorboard", "eval",
             "summary.json", "index.html", "plots"}  # fmt: skip
    if foreign := sorted({path.name for path in folder.iterdir()} - known):
        raise UserError(
            f"{folder} holds {foreign[0]!r}, which no demo wrote; move it or pass --set run.dir=…"
        )
    shutil.rmtree(folder)


def measure(config: Config, when: str, count: int) -> list[Episode]:
    """The held-out problems, k samples each, with the weights as they are at that time."""
    if when == "after":
        newest = sorted((config.folder / "checkpoints").glob("step-*"))[-1]
        models = {
            name: model.model_copy(update={"path": str(newest / name)})
            for name, model in config.models.items()
        }
        config = config.model_copy(update={"models": models})
    env = make_env(config)
    team = Team(config)
    tasks = load_tasks(**config.tasks.dev)[:count]
    found: list[Episode] = []
    right = 0

    async def play(bar: Any) -> None:
        nonlocal right
        async for episode in rollout(
            env, team.policies, tasks, samples=config.eval.samples,
            concurrency=config.rollout.concurrency, seed=config.run.seed,
            sampling=config.eval_sampling(),
        ):  # fmt: skip
            found.append(episode)
            right += bool(episode.grade and episode.grade.correct)
            bar.advance(1, note=f"right {right / len(found):.0%}")

    title = f"{config.run.name}, {when}"
    with progress(title, count * config.eval.samples) as bar, StopSignal() as stop:
        stop.run(play(bar))
    found.sort(key=lambda episode: (episode.group, episode.sample))
    with EpisodeWriter(config.folder / "eval" / when, tokens="none") as writer:
        for episode in found:
            writer.add(episode)
    return found


def report(config: Config, before: Sequence[Episode], after: Sequence[Episode]) -> dict[str, Any]:
    """Write what a person wants to see of the run; returns the summary."""
    from mas_envs.episodes.viewer import page
    from mas_train.plots import plot_run

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
    (config.folder / "index.html").write_text(html, encoding="utf-8")
    (config.folder / "summary.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
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
