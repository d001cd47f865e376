"""The training loop: rollout, advantages, update, sync, log. Read this page first.

    for step in range(steps):
        episodes = gather(env, policies, prompts)       # rollouts: group_size episodes a prompt
        credit   = assign_credit(rows of episodes)      # advantages, agent-wise by default
        learner.update(rows, advantages)                # one model, or several
        engine.load_weights(...)                        # and probe it
        log, checkpoint; evaluate now and then

A run is a function of its configuration: tasks, seeds and versions derive from the step number, so
a run that is killed and resumed goes on bit for bit (design, section 7).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mas_envs import EpisodeWriter, TaskSet, WorkflowEnv
from mas_envs.episodes.metrics import summary
from mas_envs.errors import MachineryError, MasError, UserError
from mas_envs.failure_watch import FailureWatch
from mas_train.config import Config
from mas_train.environment import check_run_golds, make_env, run_tasks
from mas_train.experience.credit import assign_credit
from mas_train.experience.gather import Told, gather, gathered_rows, play
from mas_train.model_path import check_models
from mas_train.run.metrics_log import MetricsLog
from mas_train.run.monitor import check_rewards
from mas_train.run.run_folder import RunFolder, RunState, disk_errors
from mas_train.run.step_metrics import step_metrics
from mas_train.run.stopping import Stopped, StopSignal
from mas_train.team import Team

Watch = Callable[[dict[str, Any]], None]


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
        check_models(config)
        check_run_golds(env, tasks, dev)
    team = Team(config, folder.checkpoint)
    done, state = folder.done, folder.state
    with (
        contextlib.closing(team),
        folder,
        disk_errors(folder.path, f"make room there, then: mas-train resume {folder.path}"),
        MetricsLog(folder.path, done, config.train.wandb) as log,
        EpisodeWriter(folder.episodes, position=folder.position) as episodes,
        StopSignal() as stop,
    ):
        failures = FailureWatch()
        team.sync(done)
        try:
            for step in range(done, config.train.steps):
                measured = evaluate(config, env, team, dev, step, stop, told)
                metrics = train_step(
                    config, env, team, tasks, step, state, episodes, stop, failures, told
                )
                log.write(metrics | measured)
                done = step + 1
                watch(metrics | measured)
                if done % config.train.checkpoint_every == 0 or done == config.train.steps:
                    folder.save(done, team.trained, state, episodes.position)
                stop.check()
            if measured := evaluate(config, env, team, dev, done, stop, told):
                log.write({"step": done, **measured})
                watch({"step": done, **measured})
        except (Exception, Stopped) as error:
            if team.version == done:  # not in the middle of an update
                # A model whose process is gone cannot be saved; the error is the first one.
                with contextlib.suppress(MachineryError):
                    folder.save(done, team.trained, state, episodes.position)
            if isinstance(error, Stopped):
                raise Stopped(folder.how_to_go_on, error.number) from None
            if isinstance(error, MasError):
                kind = UserError if isinstance(error, UserError) else type(error)
                raise kind(f"{error}; {folder.how_to_go_on}") from error
            raise
    return folder.path


def train_step(
    config: Config,
    env: WorkflowEnv,
    team: Team,
    tasks: TaskSet,
    step: int,
    state: RunState,
    writer: EpisodeWriter,
    stop: StopSignal,
    failures: FailureWatch,
    told: Told,
) -> dict[str, Any]:
    """One step of the loop above; returns its metrics."""
    clock = [time.perf_counter()]
    gathered = stop.run(gather(config, env, team, tasks, step, state.drawn, told))
    failures.see_step(gathered.played)  # a rollout watches its own; few a step add up too
    clock.append(time.perf_counter())
    told("learning")
    rows, decision = gathered_rows(gathered, team.trained_agents(env.possible_agents))
    check_rewards(rows.reward, rows.agent_id, rows.known)
    columns = team.look(rows)  # the reference policy's log-probs, the critic's values
    credit = assign_credit(config, rows, columns, state.baselines, decision)
    models = team.update(credit)
    state.drawn = gathered.drawn
    team.sync(step + 1, credit.rows)
    clock.append(time.perf_counter())
    for episode in gathered.played:
        writer.add(episode)
    writer.flush()
    seconds = {"rollout": clock[1] - clock[0], "update": clock[2] - clock[1]}
    return step_metrics(step, gathered.played, credit.rows, credit.per_row, models, seconds)


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

    It is due every `eval_every` steps and at the end. It comes before the step, so that a run
    stopped in the middle of it evaluates again.
    """
    every, last = config.train.eval_every, step == config.train.steps
    if not every or (step % every and not last):
        return {}
    chosen = tasks[: config.eval.tasks]
    samples, sampling = config.eval.samples, config.eval_sampling()
    playing = play(config, env, team, chosen, step, samples, sampling, told, "dev tasks: ")
    return {"eval": summary(stop.run(playing), config.eval.samples)}
