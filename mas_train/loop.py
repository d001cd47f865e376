"""The training loop: rollout, advantages, update, sync, log. Read this page first.

    for step in range(steps):
        episodes   = collect(env, policies, prompts_of(step), samples=group_size)
        advantages = advantages(rewards, prompt, agent, trajectory)      # agent-wise by default
        learner.update(rows, advantages)                                 # one model, or several
        engine.load_weights(...)                                         # and probe it
        log, checkpoint, evaluate

A run is a function of its configuration: tasks, seeds and versions derive from the step number, so
a run that is killed and resumed goes on bit for bit (design, section 7).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mas_envs import Episode, EpisodeWriter, Task, TaskSet, WorkflowEnv, collect, load_tasks, make
from mas_envs.episodes.metrics import summary
from mas_envs.errors import UserError
from mas_envs.workflow import role_of
from mas_train.advantages import advantages
from mas_train.config import Config
from mas_train.metrics_log import MetricsLog
from mas_train.monitor import agent_statistics
from mas_train.rows import Rows, episode_rows
from mas_train.run_folder import RunFolder
from mas_train.stopping import Stopped, StopSignal
from mas_train.team import Team

Report = Callable[[dict[str, Any]], None]


def train(config: Config, *, resume: bool = False, report: Report = lambda metrics: None) -> Path:
    """Train as configured; returns the run folder. `report` sees each step's metrics.

    A new run refuses a folder that already holds one; `resume` continues from its newest
    checkpoint. On Ctrl-C or SIGTERM the last finished step is saved and `Stopped` is raised.
    """
    folder = RunFolder(config, resume)
    env = make_env(config)
    tasks = {name: load_tasks(**options) for name, options in config.tasks.model_dump().items()}
    team = Team(config)
    start, position = folder.restore(team.trained)
    team.sync(start)
    folder.create()
    log = MetricsLog(folder.path, start, config.train.wandb)
    with EpisodeWriter(folder.episodes, position=position) as episodes, StopSignal() as stop:
        done = start
        try:
            for step in range(start, config.train.steps):
                metrics = train_step(config, env, team, tasks["train"], step, episodes, stop)
                done = step + 1
                if config.train.eval_every and done % config.train.eval_every == 0:
                    found = stop.run(evaluate(config, env, team, tasks["dev"], done))
                    metrics["eval"] = summary(found, config.eval.samples)
                log.write(metrics)
                report(metrics)
                if done % config.train.checkpoint_every == 0 or done == config.train.steps:
                    folder.save(done, team.trained, episodes.position)
                stop.check()
        except Stopped:
            folder.save(done, team.trained, episodes.position)
            raise Stopped(
                f"{done} of {config.train.steps} steps are saved; go on with: "
                f"mas-train resume {folder.path}"
            ) from None
        finally:
            log.close()
    return folder.path


def train_step(
    config: Config,
    env: WorkflowEnv,
    team: Team,
    tasks: TaskSet,
    step: int,
    writer: EpisodeWriter,
    stop: StopSignal,
) -> dict[str, Any]:
    """One step of the loop above; returns its metrics."""
    clock = [time.perf_counter()]
    episodes = stop.run(
        collect(
            env,
            team.policies,
            prompts_of(step, tasks, config.rollout.prompts_per_step, config.run.seed),
            samples=config.rollout.group_size,
            concurrency=config.rollout.concurrency,
            seed=config.run.seed,
            step=step,
            sampling=config.sampling(),
            deadline_s=config.rollout.deadline_s,
        )
    )
    clock.append(time.perf_counter())
    rows = episode_rows(episodes, team.trained_roles)
    credit = advantages(
        rows.reward,
        rows.prompt,
        rows.agent,
        rows.trajectory,
        rows.turn,
        known=rows.known,
        **config.estimator.model_dump(),
    )
    models = team.update(rows, credit)
    team.sync(step + 1, rows)
    clock.append(time.perf_counter())
    for episode in episodes:
        writer.add(episode)
    writer.flush()
    seconds = {"rollout": clock[1] - clock[0], "update": clock[2] - clock[1]}
    return step_metrics(step, episodes, rows, credit, models, seconds)


def prompts_of(step: int, tasks: TaskSet, count: int, seed: int) -> Sequence[Task]:
    """The tasks of one step: every epoch is a permutation of its own, drawn from (seed, epoch)."""
    places = range(step * count, (step + 1) * count)
    orders = {
        epoch: np.random.default_rng(np.random.SeedSequence([seed, epoch])).permutation(len(tasks))
        for epoch in {place // len(tasks) for place in places}
    }
    return [tasks[int(orders[place // len(tasks)][place % len(tasks)])] for place in places]


async def evaluate(
    config: Config, env: WorkflowEnv, team: Team, tasks: TaskSet, step: int
) -> list[Episode]:
    """Episodes on the dev tasks with the evaluation's sampling; nothing is learnt from them."""
    chosen = tasks[: config.eval.tasks] if config.eval.tasks else tasks
    return await collect(
        env,
        team.policies,
        chosen,
        samples=config.eval.samples,
        concurrency=config.rollout.concurrency,
        seed=config.run.seed,
        step=step,
        sampling=config.eval_sampling(),
        deadline_s=config.rollout.deadline_s,
    )


def make_env(config: Config) -> WorkflowEnv:
    """The environment of a run, with each agent's invalid-action penalty.

    Raises `UserError` unless `agents:` names exactly the environment's roles.
    """
    chosen = {} if config.env.prompts is None else {"prompts": config.env.prompts}
    arguments = {**config.env.args, **chosen}
    bare = make(config.env.id, **arguments)
    roles = {role_of(agent) for agent in bare.possible_agents}
    if missing := sorted(roles - set(config.agents)):
        raise UserError(f"agents: {config.env.id} has the roles {sorted(roles)}; add {missing}")
    if unknown := sorted(set(config.agents) - roles):
        raise UserError(f"agents: {config.env.id} has the roles {sorted(roles)}; remove {unknown}")
    penalties = {role: agent.invalid_penalty for role, agent in config.agents.items()}
    return make(config.env.id, **{"invalid_penalty": penalties, **arguments})


def failures(episodes: Sequence[Episode]) -> dict[str, Any]:
    """How many episodes failed and why. `expired_tokens` are the lengths of those that ran into
    their deadline: leaving them out favours short episodes, and a reader should see by how much.
    """
    failed = [episode for episode in episodes if episode.status == "failed"]
    expired = [episode for episode in failed if episode.reason.startswith("deadline")]
    return {
        "failed": len(failed),
        "failures": dict(Counter(episode.reason for episode in failed)),
        "expired_tokens": sorted(sum(t.response_tokens for t in e.turns) for e in expired),
    }


def step_metrics(
    step: int,
    episodes: Sequence[Episode],
    rows: Rows,
    credit: Any,
    models: dict[str, dict[str, float]],
    seconds: dict[str, float],
) -> dict[str, Any]:
    """What `metrics.jsonl` holds of one step: the team, each agent (the monitor), each model."""
    played = [episode for episode in episodes if episode.status == "done"]
    graded = [episode.grade.correct is True for episode in played if episode.grade is not None]
    statistics = agent_statistics(
        rows.reward, rows.prompt, rows.agent, rows.trajectory, credit, rows.known
    )
    agents: dict[str, dict[str, float | None]] = {}
    for role, statistic in statistics.items():
        turns = [turn for episode in played for turn in episode.turns if turn.role == role]
        norms = [m[f"grad_norm/{role}"] for m in models.values() if f"grad_norm/{role}" in m]
        agents[role] = {
            **statistic._asdict(),
            "grad_norm": norms[0] if norms else None,
            "invalid_share": float(np.mean([turn.parse_status != "ok" for turn in turns])),
            "response_tokens": float(np.mean([turn.response_tokens for turn in turns])),
        }
    sampled = sum(turn.response_tokens for episode in episodes for turn in episode.turns)
    return {
        "step": step,
        "reward": float(np.mean([episode.reward for episode in played])) if played else None,
        "accuracy": float(np.mean(graded)) if graded else None,
        **failures(episodes),
        "agents": agents,
        "models": models,
        "seconds": seconds,
        "tokens_per_second": sampled / seconds["rollout"],
    }
