"""One episode of a rollout: asks policies and tools, retries their faults, keeps the deadline.

`mas_envs.rollout` loads this module when it plays, not before: asyncio would be a tenth of what
`import mas_envs` costs.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from mas_envs.episodes.plain import plain
from mas_envs.episodes.schema import Episode, Sampling
from mas_envs.errors import MachineryError, UnknownName, UserError
from mas_envs.fork import Fork
from mas_envs.policies.base import Policies, Policy, Request, Response
from mas_envs.protocol import Ask, role_of
from mas_envs.session import Session
from mas_envs.tasks import Task
from mas_envs.tool_queue import ToolQueue, stop_if_cancelled
from mas_envs.workflow import WorkflowEnv


def environment_seed(seed: int, step: int, task_id: str) -> int:
    """The environment's seed: the same for all members of a group, which differ in sampling."""
    return int(np.random.SeedSequence([seed, step, int(task_id, 16)]).generate_state(1)[0])


def turn_seed(seed: int, step: int, task_id: str, sample: int, turn: int) -> int:
    """The sampling seed of one turn. 63 bits: what every engine and JSON reader can hold."""
    sequence = np.random.SeedSequence([seed, step, int(task_id, 16), sample, turn])
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


def _for_agent(chosen: Any, agent: str, what: str) -> Any:
    """The entry of an agent in a map by role, where the agent's own id overrides its role."""
    if not isinstance(chosen, Mapping):
        return chosen
    for key in (agent, role_of(agent)):
        if key in chosen:
            return chosen[key]
    raise UserError(f"no {what} for agent {agent!r}; the map names {sorted(chosen)}")


def _check_names(chosen: Any, agents: Sequence[str], what: str) -> None:
    """A map by role or agent may name nobody else. Raises `UnknownName`."""
    known = {*agents, *map(role_of, agents)}
    for name in chosen if isinstance(chosen, Mapping) else ():
        if name not in known:
            raise UnknownName("agent", str(name), known, where=what)


class Job(NamedTuple):
    """One episode to play."""

    group: int
    task: Task | Fork
    sample: int
    draw: int
    """`sample`, counted on over the repetitions of one task: no two of its episodes are alike."""


def check_tasks(tasks: Sequence[Task | Fork]) -> None:
    """Raises `UserError` for anything else than tasks and forks."""
    for task in tasks:
        if not isinstance(task, Task | Fork):
            raise UserError(f"{task!r:.80} among the tasks; give env.tasks, Tasks or Forks")


def jobs_of(
    tasks: Sequence[Task | Fork], samples: int, skip: Container[tuple[str, int]]
) -> Iterator[Job]:
    """`samples` jobs per task in order, without those to `skip`."""
    seen: Counter[str] = Counter()
    for group, task in enumerate(tasks):
        for sample in range(samples):
            if (task.id, sample) not in skip:
                yield Job(group, task, sample, sample + samples * seen[task.id])
        seen[task.id] += 1


class Player:
    """What all episodes of one rollout share."""

    def __init__(
        self,
        env: WorkflowEnv,
        policies: Policies,
        sampling: Sampling | Mapping[str, Sampling] | None,
        seed: int,
        step: int,
        deadline_s: float | None,
        retries: int,
    ) -> None:
        self.env, self.seed, self.step = env, seed, step
        self.deadline_s, self.retries = deadline_s, retries
        for what, chosen in (("policies", policies), ("sampling", sampling)):
            _check_names(chosen, env.possible_agents, what)
        self.policies: dict[str, Policy] = {
            agent: _for_agent(policies, agent, "policy") for agent in env.possible_agents
        }
        for agent, policy in self.policies.items():
            if not isinstance(policy, Policy):
                raise UserError(
                    f"the policy of {agent!r} is {policy!r:.80}; it has no act(request)"
                )
        self.sampling: dict[str, Sampling] = {
            agent: _for_agent(sampling, agent, "sampling") or Sampling()
            for agent in env.possible_agents
        }
        self.tools = {name: ToolQueue(name, tool, retries) for name, tool in env.tools.items()}

    async def play(self, job: Job) -> Episode:
        """One episode, done or failed."""
        session = self._session(job)
        deadline = None if self.deadline_s is None else time.monotonic() + self.deadline_s
        try:
            async with asyncio.timeout(self.deadline_s) as clock:
                await self._drive(session, job, deadline)
        except TimeoutError:
            if not clock.expired():
                raise
            return session.fail(f"deadline of {self.deadline_s:g} s")
        except MachineryError as error:
            return session.fail(str(error))
        return session.episode

    def _session(self, job: Job) -> Session:
        """The episode's start, or the decision where it is forked."""
        place = {"group": job.group, "sample": job.sample, "step": self.step}
        if isinstance(job.task, Task):
            seed = environment_seed(self.seed, self.step, job.task.id)
            return Session(self.env, job.task, seed=seed, **place)
        session = job.task.session(self.env)
        session.episode = msgspec.structs.replace(session.episode, **place)
        return session

    async def close(self) -> None:
        """End the tool calls that nobody waits for any more."""
        for tool in self.tools.values():
            await tool.close()

    async def _drive(self, session: Session, job: Job, deadline: float | None) -> None:
        while session.outcome is None:
            started = time.perf_counter()
            if session.call is not None:
                args = plain(session.call.args, session.call.tool)  # a tool may change its own copy
                result = await self.tools[session.call.tool].call(args)
                session.give(result, time.perf_counter() - started)
                continue
            requests = [
                self._request(session, ask, job, session.turn + offset, deadline)
                for offset, ask in enumerate(session.asks)
            ]
            if len(requests) == 1:
                responses = [await self.act(requests[0])]
            else:
                responses = await _all(self.act(request) for request in requests)
            seconds = time.perf_counter() - started
            for request, response in zip(requests, responses, strict=True):
                session.answer(
                    response, sampling=request.sampling, seed=request.seed, seconds=seconds
                )

    def _request(
        self, session: Session, ask: Ask, job: Job, turn: int, deadline: float | None
    ) -> Request:
        seed = turn_seed(self.seed, self.step, job.task.id, job.draw, turn)
        return request_for(session, ask, self.sampling[ask.agent], seed, turn, deadline)

    async def act(self, request: Request) -> Response:
        """What the agent's policy answers; retried, then a `MachineryError`."""
        policy = self.policies[request.agent]
        for attempt in range(self.retries + 1):
            try:
                response = await policy.act(request)
                stop_if_cancelled()  # even if the policy answers its cancellation with a Response
                if not isinstance(response, Response) or not isinstance(response.text, str):
                    raise TypeError(f"expected a Response with text, not {response!r:.80}")
                return response
            except UserError:
                raise
            except (Exception, asyncio.CancelledError) as error:
                stop_if_cancelled(error)
                if attempt == self.retries:
                    reason = f"policy of {request.agent}: {type(error).__name__}: {error}"
                    raise MachineryError(reason) from error
                await asyncio.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable")


def request_for(
    session: Session, ask: Ask, sampling: Sampling, seed: int, turn: int, deadline: float | None
) -> Request:
    """What a policy is asked; `turn` counts the decisions of the episode before this one."""
    if ask.max_tokens is not None and ask.max_tokens < sampling.max_tokens:
        sampling = msgspec.structs.replace(sampling, max_tokens=ask.max_tokens)
    return Request(
        agent=ask.agent,
        role=role_of(ask.agent),
        messages=tuple(ask.messages),
        sampling=sampling,
        seed=seed,
        key=(session.episode.group, session.episode.sample, turn),
        deadline=deadline,
    )


async def _all(acts: Any) -> list[Response]:
    """All results in order; the first failure ends the rest of this episode's requests."""
    tasks = [asyncio.ensure_future(act) for act in acts]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
