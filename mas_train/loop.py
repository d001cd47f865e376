"""The training loop: rollout, advantages, update, sync, log. Read this page first.

    for step in range(steps):
        episodes   = rollout(env, policies, prompts_of(step), samples=group_size)
        advantages = advantages(rewards, prompt, agent, trajectory)      # agent-wise by default
        learner.update(rows, advantages)                                 # one model, or several
        engine.load_weights(...)                                         # and probe it
        log, checkpoint; evaluate now and then

A run is a function of its configuration: tasks, seeds and versions derive from the step number, so
a run that is killed and resumed goes on bit for bit (design, section 7).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mas_envs import (
    Episode,
    EpisodeWriter,
    Sampling,
    Task,
    TaskSet,
    WorkflowEnv,
    rollout,
)
from mas_envs.episodes.metrics import summary
from mas_envs.errors import MasError, UserError
from mas_envs.failure_watch import FailureWatch
from mas_train.advantages import advantages
from mas_train.config import Config
from mas_train.environment import check_run_golds, make_env, run_tasks
from mas_train.metrics_log import MetricsLog
from mas_train.rows import episode_rows
from mas_train.run_folder import RunFolder, disk_errors
from mas_train.step_metrics import step_metrics
from mas_train.stopping import Stopped, StopSignal
from mas_train.team import Team

Watch = Callable[[dict[str, Any]], None]
Told = Callable[[str], None]
"""Hears every second, and in a few words, what a step is at."""


def train(
    config: Config,
    *,
    resume: bool = False,
    watch: Watch = lambda metrics: None,
    told: Told = lambda what: None,
) -> Path:
    """Train as configured; returns the run folder. `watch` sees each step's metrics.

    A new run refuses a folder that already holds one; `resume` continues from its newest
    checkpoint. What ends a run early while it plays (Ctrl-C and SIGTERM, which raise `Stopped`,
    too many failed episodes, a bug in a workflow) costs the step in flight: the last finished one
    is saved first.
    """
    folder = RunFolder(config, resume)
    env = make_env(config)
    tasks, dev = run_tasks(config)
    if not resume:
        check_run_golds(env, tasks, dev)
    team = Team(config, folder.checkpoint)
    team.sync(folder.done)
    done = folder.done
    with (
        folder,
        disk_errors(folder.path, f"make room there, then: mas-train resume {folder.path}"),
        MetricsLog(folder.path, done, config.train.wandb) as log,
        EpisodeWriter(folder.episodes, position=folder.position) as episodes,
        StopSignal() as stop,
    ):
        failures = FailureWatch()
        try:
            for step in range(done, config.train.steps):
                measured = evaluate(config, env, team, dev, step, stop, told)
                metrics = train_step(config, env, team, tasks, step, episodes, stop, failures, told)
                log.write(metrics | measured)
                done = step + 1
                watch(metrics | measured)
                if done % config.train.checkpoint_every == 0 or done == config.train.steps:
                    folder.save(done, team.trained, episodes.position)
                stop.check()
            if measured := evaluate(config, env, team, dev, done, stop, told):
                log.write({"step": done, **measured})
                watch({"step": done, **measured})
        except (Exception, Stopped) as error:
            if team.version == done:  # not in the middle of an update
                folder.save(done, team.trained, episodes.position)
            if isinstance(error, Stopped):
                raise Stopped(folder.how_to_go_on, error.number) from None
            if isinstance(error, MasError) and not isinstance(error, UserError):
                raise type(error)(f"{error}; {folder.how_to_go_on}") from error
            raise
    return folder.path


def train_step(
    config: Config,
    env: WorkflowEnv,
    team: Team,
    tasks: TaskSet,
    step: int,
    writer: EpisodeWriter,
    stop: StopSignal,
    failures: FailureWatch,
    told: Told,
) -> dict[str, Any]:
    """One step of the loop above; returns its metrics."""
    clock = [time.perf_counter()]
    prompts = prompts_of(step, tasks, config.rollout.prompts_per_step, config.run.seed)
    size, sampling = config.rollout.group_size, config.sampling()
    playing = play(config, env, team, prompts, step, size, sampling, told)
    episodes = stop.run(playing)
    for episode in episodes:
        failures.see(episode)  # a rollout watches its own; few a step add up too
    clock.append(time.perf_counter())
    told("learning")
    rows = episode_rows(episodes, team.trained_agents(env.possible_agents))
    credit = advantages(
        rows.reward,
        rows.prompt,
        rows.agent,
        rows.trajectory,
        rows.turn,
        known=rows.known,
        **config.estimator.choices(),
    )
    models = team.update(rows, credit)
    team.sync(step + 1, rows)
    clock.append(time.perf_counter())
    for episode in episodes:
        writer.add(episode)
    writer.flush()
    seconds = {"rollout": clock[1] - clock[0], "update": clock[2] - clock[1]}
    return step_metrics(step, episodes, rows, credit, models, seconds)


def evaluate(
    config: Config,
    env: WorkflowEnv,
    team: Team,
    tasks: TaskSet,
    step: int,
    stop: StopSignal,
    told: Told,
) -> dict[str, Any]:
    """{"eval": summary} of the dev tasks with the weights after `step` steps, when it is due.

    It comes before the step, so that a run stopped in the middle of it evaluates again.
    """
    if not config.train.eval_every or step % config.train.eval_every:
        return {}
    chosen = tasks[: config.eval.tasks]
    samples, sampling = config.eval.samples, config.eval_sampling()
    playing = play(config, env, team, chosen, step, samples, sampling, told, "dev tasks: ")
    return {"eval": summary(stop.run(playing), config.eval.samples)}


async def play(
    config: Config,
    env: WorkflowEnv,
    team: Team,
    tasks: Sequence[Task],
    step: int,
    samples: int,
    sampling: Sampling,
    told: Told = lambda what: None,
    of: str = "",
) -> list[Episode]:
    """`samples` episodes per task, in (task, sample) order; `told` hears how many there are."""
    episodes: list[Episode] = []

    async def tell() -> None:
        while True:
            done = f"{of}{len(episodes)}/{len(tasks) * samples} episodes"
            told(f"{done}, {team.sampled_tokens - before:,} tokens")
            await asyncio.sleep(1)

    before = team.sampled_tokens
    telling = asyncio.create_task(tell())
    try:
        async for episode in rollout(
            env,
            team.policies,
            tasks,
            samples=samples,
            concurrency=config.rollout.concurrency,
            seed=config.run.seed,
            step=step,
            sampling=sampling,
            deadline_s=config.rollout.deadline_s,
        ):
            episodes.append(episode)
    finally:
        telling.cancel()
    return sorted(episodes, key=lambda episode: (episode.group, episode.sample))


def prompts_of(step: int, tasks: TaskSet, count: int, seed: int) -> Sequence[Task]:
    """The tasks of one step: every epoch is a permutation of its own, drawn from (seed, epoch)."""
    places = range(step * count, (step + 1) * count)
    orders = {
        epoch: np.random.default_rng(np.random.SeedSequence([seed, epoch])).permutation(len(tasks))
        for epoch in {place // len(tasks) for place in places}
    }
    return [tasks[int(orders[place // len(tasks)][place % len(tasks)])] for place in places]
