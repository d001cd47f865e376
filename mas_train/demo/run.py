"""`mas-train demo`: measure a small team, train it, measure it again, and show what changed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from mas_envs import Episode, EpisodeWriter
from mas_envs.console import Progress, progress
from mas_envs.errors import UserError
from mas_envs.files import lock_folder
from mas_envs.rollout import rollout
from mas_train.config import Config, resolve
from mas_train.demo.report import report
from mas_train.environment import make_env, run_tasks
from mas_train.loop import train
from mas_train.run.checkpoint import newest
from mas_train.run.metrics_log import headline
from mas_train.run.run_folder import disk_errors
from mas_train.run.stopping import Stopped, StopSignal
from mas_train.team import load_engines

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
    with disk_errors(config.folder, "make room there and start the demo again"):
        try:
            before = measure(config, "before")
            with progress(config.run.name, config.train.steps, unit="steps") as bar:
                train(config, watch=lambda metrics: bar.advance(1, note=headline(metrics)))
            after = measure(config, "after", newest(config.folder / "checkpoints"))
        except Stopped as stopped:
            again = "the demo did not finish; the same command starts it anew"
            raise Stopped(again, stopped.number) from None
        return report(config, before, after)


def clear_earlier_demo(folder: Path) -> None:
    """Remove what an earlier demo left. Raises `UserError` if the folder is something else."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; move it or pass --set run.dir=…")
    known = {"config.yaml", "metrics.jsonl", "episodes", "checkpoints", "tensorboard", "eval",
             "summary.json", "index.html", "plots", ".lock"}  # fmt: skip
    if foreign := sorted({path.name for path in folder.iterdir()} - known):
        raise UserError(
            f"{folder} holds {foreign[0]!r}, which no demo wrote; move it or pass --set run.dir=…"
        )
    with lock_folder(folder):  # not while it is still running
        shutil.rmtree(folder)


def measure(config: Config, when: str, checkpoint: Path | None = None) -> list[Episode]:
    """The held-out problems, k samples each, with the checkpoint's weights; stored in `eval/`."""
    env, (_, tasks) = make_env(config), run_tasks(config)
    engines = load_engines(config, checkpoint)
    policies = {role: engines[agent.model] for role, agent in config.agents.items()}
    chosen = tasks[: config.eval.tasks]
    found: list[Episode] = []
    right = 0

    async def play(bar: Progress) -> None:
        nonlocal right
        async for episode in rollout(
            env,
            policies,
            chosen,
            samples=config.eval.samples,
            concurrency=config.rollout.concurrency,
            seed=config.run.seed,
            sampling=config.eval_sampling(),
        ):
            found.append(episode)
            right += bool(episode.grade and episode.grade.correct)
            bar.advance(1, note=f"right {right / len(found):.0%}")

    total = len(chosen) * config.eval.samples
    with (
        EpisodeWriter(config.folder / "eval" / when, tokens="none") as writer,
        progress(f"{config.run.name}, {when}", total) as bar,
        StopSignal() as stop,
    ):
        stop.run(play(bar))
        found.sort(key=lambda episode: (episode.group, episode.sample))
        for episode in found:
            writer.add(episode)
    return found
