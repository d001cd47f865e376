"""Experience for one training step: prompts, episodes, redrawn prompts, resampled decisions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mas_envs import Episode, Fork, Sampling, Task, TaskSet, WorkflowEnv, rollout
from mas_envs.episodes.schema import row_rewards
from mas_train.config import Config
from mas_train.experience.rows import Rows, episode_rows
from mas_train.team import Team

Told = Callable[[str], None]
"""Hears every second, and in a few words, what a step is at."""


class Gathered(NamedTuple):
    """Episodes of one step in (group, sample) order.

    `played` are all of them, `kept` those to learn from (without the groups that were redrawn),
    `drawn` the prompts taken from the tasks so far, over all steps. With estimator
    `counterfactual` `decisions` tells of each kept episode (a number, the event): episodes of one
    number are alternatives of one decision, the turn with that index.
    """

    played: list[Episode]
    kept: list[Episode]
    drawn: int
    decisions: list[tuple[int, int]] | None = None


async def gather(
    config: Config,
    env: WorkflowEnv,
    team: Team,
    tasks: TaskSet,
    step: int,
    drawn: int,
    told: Told = lambda what: None,
) -> Gathered:
    """Play `prompts_per_step` groups; redraw those without a signal, or resample decisions."""
    count, seed = config.rollout.prompts_per_step, config.run.seed
    size, sampling = config.rollout.group_size, config.sampling()
    prompts = prompts_of(drawn, count, tasks, seed)
    played = await play(config, env, team, prompts, step, size, sampling, told)
    drawn, groups, kept = drawn + count, count, played
    trained = team.trained_agents(env.possible_agents)
    for _ in range(config.rollout.redraws):
        flat = without_signal(kept, trained)
        if not flat:
            break
        prompts = prompts_of(drawn, len(flat), tasks, seed)
        fresh = await play(config, env, team, prompts, step, size, sampling, told, "redrawn: ")
        for episode in fresh:
            episode.group += groups  # no two groups of a step have one number
        drawn, groups = drawn + len(flat), groups + len(flat)
        kept = [episode for episode in kept if episode.group not in flat] + fresh
        played = played + fresh
    if config.estimator.preset != "counterfactual":
        return Gathered(played, kept, drawn)
    forks = decisions_of(kept, trained, seed)
    samples = config.estimator.alternatives - 1
    others = await play(config, env, team, forks, step, samples, sampling, told, "alternatives: ")
    originals = [fork.episode for fork in forks]
    decisions = [(number, fork.decision) for number, fork in enumerate(forks)]
    decisions += [decisions[episode.group] for episode in others]
    for episode in others:
        episode.group += groups
    return Gathered(played + others, originals + others, drawn, decisions)


def gathered_rows(gathered: Gathered, trained: set[str]) -> tuple[Rows, NDArray[np.int64] | None]:
    """The rows to learn from; of alternatives the decision each belongs to [N], and no others."""
    rows = episode_rows(gathered.kept, trained)
    if gathered.decisions is None:
        return rows, None
    number, event = np.array(gathered.decisions, np.int64).reshape(-1, 2)[rows.trajectory].T
    chosen = rows.event == event
    return rows.take(chosen), number[chosen]


def without_signal(episodes: Sequence[Episode], trained: set[str]) -> set[int]:
    """The groups in which all turns of trained agents earned the same, or fewer than two are known.

    DAPO's dynamic sampling (arXiv 2503.14476, section 3.2): they would have no gradient.
    """
    rewards: defaultdict[int, list[float]] = defaultdict(list)
    for episode in episodes:
        known = rewards[episode.group]
        if episode.status == "done":
            rows = zip(episode.turns, row_rewards(episode), strict=True)
            known += [reward for turn, reward in rows if turn.agent in trained]
    return {group for group, known in rewards.items() if len(set(known)) < 2}


def decisions_of(episodes: Sequence[Episode], trained: set[str], seed: int) -> list[Fork]:
    """One turn of a trained agent of each episode that ended, drawn uniformly, to resample (C3).

    Which one depends on the seed and the episode's place in the run alone.
    """
    forks = []
    for episode in episodes:
        turns = [turn.index for turn in episode.turns if turn.agent in trained]
        if episode.status == "done" and turns:
            entropy = [seed, episode.step, episode.group, episode.sample]
            rng = np.random.default_rng(np.random.SeedSequence(entropy))
            forks.append(Fork(episode, int(rng.choice(turns))))
    return forks


async def play(
    config: Config,
    env: WorkflowEnv,
    team: Team,
    tasks: Sequence[Task | Fork],
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


def prompts_of(first: int, count: int, tasks: TaskSet, seed: int) -> Sequence[Task]:
    """Prompts number `first` and on of a run: every epoch is a permutation of its own, drawn from
    (seed, epoch).
    """  # fmt: skip
    places = range(first, first + count)
    orders = {
        epoch: np.random.default_rng(np.random.SeedSequence([seed, epoch])).permutation(len(tasks))
        for epoch in {place // len(tasks) for place in places}
    }
    return [tasks[int(orders[place // len(tasks)][place % len(tasks)])] for place in places]
