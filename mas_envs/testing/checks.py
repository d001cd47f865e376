"""What a workflow promises: any text may be answered; the same seed plays the same episode, alone
or among others; and a recorded episode replays to every decision, can be forked there, and replays
in another process with another hash seed. Then PettingZoo's own tests.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from mas_envs.episodes.difference import difference, timeless
from mas_envs.episodes.metrics import GIVE_A_GRADE
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.store import write_episodes
from mas_envs.errors import CheckFailed
from mas_envs.fork import Fork
from mas_envs.grading.gold import check_golds
from mas_envs.policies.base import Request, Response
from mas_envs.policies.random_text import RandomPolicy, random_answer
from mas_envs.registration import COMMON, EnvSpec, keywords_of, make
from mas_envs.rollout import collect
from mas_envs.tasks import Task
from mas_envs.testing.faults import PURE, in_words, no_endless_play
from mas_envs.testing.replays import check_replay
from mas_envs.workflow import WorkflowEnv

UNAVOIDABLE_WARNINGS = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be gymnasium.spaces.box or "
    "gymnasium.spaces.discrete",
    "Action space for each agent probably should be gymnasium.spaces.box or "
    "gymnasium.spaces.discrete",
)
"""PettingZoo's tests warn about every space that is not a box (PettingZoo issue 1259)."""

STUBBORN = (
    "", " \n", "no", "<think>", "\\boxed{", "\\boxed{none}", "\\boxed{" + "9" * 5_000 + "}",
    "\ud800", "{question}{history}%s", "x" * 100_000,
    "".join(f"<{tag}>yes</{tag}>" for tag in ("think", "verify", "search", "answer", "problem")),
)  # fmt: skip
"""What everybody says all the time, an episode each: int() and split()[0] fail on some of it."""


def check(id: str, episodes: int = 20, seed: int = 0, **kwargs: Any) -> Iterator[str]:
    """Run all checks on an environment; yields a line "ok  …" per check passed, and notes.

    Raises `CheckFailed` at the first that fails, `UserError` for an environment that cannot be
    made.
    """
    with no_endless_play():
        yield from _checks(id, episodes, seed, kwargs)


def _checks(id: str, episodes: int, seed: int, kwargs: dict[str, Any]) -> Iterator[str]:
    """Ours come before PettingZoo's, because they say more."""
    with in_words(f"{id} cannot be made"):
        env = make(id, **kwargs)
    again = make(EnvSpec.from_json(env.spec.to_json()))
    if again.spec != env.spec or type(again) is not type(env):
        raise CheckFailed(f"{id}: its spec makes another environment: {again.spec}")
    yield "ok  the serialised spec makes the same environment"
    if count := check_golds(env, env.tasks):
        yield f"ok  {count} golds can be graded"
    played = [_fuzzed(env, seed + number) for number in range(episodes)]
    stubborn = [_fuzzed(env, seed, said) for said in STUBBORN]
    yield f"ok  {episodes} episodes of well-formed and malformed answers"
    for number, episode in enumerate(played):
        _same(episode, _fuzzed(again, seed + number), f"{id}: seed {seed + number}", "again")
    yield f"ok  {episodes} seeds play the same episodes again"
    together = _rollouts(id, env, seed, episodes)
    yield "ok  many episodes at once play as each does alone"
    for episode in [*played, *stubborn, *together]:
        with in_words(f"{id}: replaying task {episode.task}"):
            check_replay(env, episode)
    yield "ok  every episode replays to every decision"
    _forks(id, env, together)
    yield "ok  and can be forked there"
    _replay_elsewhere(id, [*played, *stubborn, *together])
    yield "ok  and replays in another process with another hash seed"
    _pettingzoo_tests(id, kwargs)
    yield "ok  PettingZoo api_test and seed_test"
    yield from _notes(env, stubborn, [*played, *together])


def play_random(env: WorkflowEnv, seed: int, said: str | None = None) -> Episode:
    """One episode of random well-formed and malformed actions; or everybody says `said`."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    for agent in env.agent_iter():
        if env.terminations[agent] or env.truncations[agent]:
            env.step(None)
            continue
        observation = env.observe(agent)
        if not env.observation_space(agent).contains(observation):
            roles = [message["role"] for message in observation["messages"]]
            raise CheckFailed(f"what {agent} is shown at turn {len(env.episode.turns)} is outside "
                              "of its observation space (a text too long, or a message's role: "
                              f"{roles})")  # fmt: skip
        shown = "\n".join(message["content"] for message in observation["messages"])
        env.step(random_answer(rng, shown) if said is None else said)
    return env.episode


# ---- the checks one by one -----------------------------------------------------------------------


def _pettingzoo_tests(id: str, kwargs: dict[str, Any]) -> None:
    from pettingzoo.test import api_test, seed_test

    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), in_words(f"{id}: PettingZoo"):
        warnings.filterwarnings("error", module="pettingzoo")
        for message in UNAVOIDABLE_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        try:
            api_test(make(id, **kwargs), num_cycles=100)
            seed_test(lambda: make(id, **kwargs), num_cycles=20)
        except (AssertionError, Warning) as error:
            said = f"{error}; {PURE}" if str(error).startswith("Incorrect") else error or PURE
            raise CheckFailed(f"{id}: PettingZoo's tests say: {said}") from error


def _fuzzed(env: WorkflowEnv, seed: int, said: str | None = None) -> Episode:
    """`play_random`, with what the environment raises told in words."""

    def last_answer() -> str | None:
        return env.episode.turns[-1].text if env.episode.turns else None

    with in_words(f"{env.spec.id}: seed {seed}", last_answer):
        return play_random(env, seed, said)


def _rollouts(id: str, env: WorkflowEnv, seed: int, episodes: int) -> list[Episode]:
    """Episodes of the concurrent driver, which must not depend on how many play at once."""
    tasks = env.tasks[: max(1, episodes // 2)]
    one, many = (_collected(env, tasks, samples=2, seed=seed, concurrency=n) for n in (1, 64))
    for alone, among in zip(one, many, strict=True):
        _same(alone, among, f"{id}: task {alone.task}", "among others")
    return many


def _forks(id: str, env: WorkflowEnv, played: Sequence[Episode]) -> None:
    """Resample the longest episode from each of its decisions on."""
    episode = max(played, key=lambda one: len(one.events))
    places = [Fork(episode, decision) for decision in range(len(episode.events))]
    for place, fork in zip(places, _collected(env, places, samples=1), strict=True):
        kept = [event for event in fork.events if event.index < place.decision]
        if timeless(kept) != timeless(episode.events[: place.decision]):
            raise CheckFailed(f"{id}: a fork at event {place.decision} has another past; {PURE}")
        check_replay(env, fork)


class _Interleaved(RandomPolicy):
    """Lets other episodes go on before it answers, as a model does."""

    async def act(self, request: Request) -> Response:
        import asyncio

        for _ in range(1 + request.seed % 3):
            await asyncio.sleep(0)
        return await super().act(request)


def _collected(env: WorkflowEnv, tasks: Sequence[Task | Fork], **options: Any) -> list[Episode]:
    import asyncio

    with in_words(f"{env.spec.id}: many episodes"):
        episodes = asyncio.run(collect(env, _Interleaved(), tasks, **options))
    failed = [episode.reason for episode in episodes if episode.status == "failed"]
    if failed:
        raise CheckFailed(f"{len(failed)} of {len(episodes)} episodes failed: {failed[0]}")
    return episodes


def _replay_elsewhere(id: str, played: list[Episode]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episodes.jsonl"
        write_episodes(path, played)
        other = {**os.environ, "PYTHONHASHSEED": "4711"}
        # -P: the folder we happen to stand in must not shadow our packages.
        command = [sys.executable, "-P", "-m", "mas_envs.testing", str(path)]
        result = subprocess.run(command, env=other, capture_output=True, text=True, check=False)
    if result.returncode:
        problem = (result.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise CheckFailed(f"{id}: in another process: {problem}; {PURE}")


def _same(first: Episode, second: Episode, what: str, how: str) -> None:
    if found := difference(first, second):
        raise CheckFailed(f"{what} played otherwise {how}: {found}; {PURE}")


def _notes(
    env: WorkflowEnv, stubborn: Sequence[Episode], played: Sequence[Episode]
) -> Iterator[str]:
    """What is allowed and perhaps not meant."""
    if ungraded := sum(episode.grade is None for episode in played):
        yield (f"note  {ungraded} of {len(played)} episodes end without a grade, as training "
               f"allows and mas-bench does not; {GIVE_A_GRADE}")  # fmt: skip
    asked = {turn.agent for episode in played for turn in episode.turns}
    if silent := [agent for agent in env.possible_agents if agent not in asked]:
        yield f"note  never asked in {len(played)} episodes: {', '.join(silent)}"
    taken = keywords_of(type(env)) or COMMON
    if refused := [name for name in COMMON if name not in taken]:
        yield (f"note  it takes no {', '.join(refused)}; let __init__ take **common and pass it to "
               "super().__init__")  # fmt: skip
    for agent, name in sorted(_unfilled(env, stubborn)):
        yield f"note  {agent} is shown {{{name}}} as it stands in the prompts; nothing fills it"


def _unfilled(env: WorkflowEnv, stubborn: Sequence[Episode]) -> set[tuple[str, str]]:
    """(agent, placeholder) of the prompts that agents were shown; not what LaTeX has in braces."""
    if env.default_prompts is None:
        return set()
    return {
        (turn.agent, name)
        for episode in stubborn
        for turn in episode.turns
        for text in env.prompts.texts[turn.agent].values()
        for command, name in re.findall(r"(\\[A-Za-z]+)?\{([A-Za-z_]\w*)\}", text)
        if not command and "{" not in episode.question + episode.turns[0].text
        and any(f"{{{name}}}" in message.content for message in turn.messages)
    }  # fmt: skip
