"""One episode of a rollout: asks policies and tools, retries their faults, keeps the deadline.

`mas_envs.rollout` loads this module when it plays, not before: asyncio would be a tenth of what
`import mas_envs` costs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from mas_envs.episodes.schema import Episode, Sampling
from mas_envs.errors import MachineryError, UnknownName, UserError
from mas_envs.fork import Fork
from mas_envs.policies.base import Policies, Policy, Request, Response, checked
from mas_envs.protocol import Ask, role_of
from mas_envs.seeds import environment_seed, turn_seed
from mas_envs.session import Session
from mas_envs.tasks import Task
from mas_envs.tool_queue import ToolQueue, back_off, stop_if_cancelled
from mas_envs.workflow import WorkflowEnv


class Job(NamedTuple):
    """One episode to play."""

    group: int
    task: Task | Fork
    sample: int
    draw: int
    """`sample`, counted on over the repetitions of one task: no two of its episodes are alike."""


def check_tasks(tasks: Iterable[Task | Fork]) -> Sequence[Task | Fork]:
    """The tasks as a sequence. Raises `UserError` for anything else than tasks and forks."""
    if not isinstance(tasks, Iterable):
        raise UserError(f"tasks={tasks!r:.80}; give a list, such as env.tasks or [task]")
    tasks = tuple(tasks)
    for task in tasks:
        if not isinstance(task, Task | Fork):
            raise UserError(f"{task!r:.80} among the tasks; give env.tasks, Tasks or Forks")
    return tasks


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


def _by_agent(chosen: Any, agents: Sequence[str], what: str) -> dict[str, Any]:
    """The part of each agent: its own in a map, else its role's; what is no map is for all.

    Raises `UserError` where an agent has none, `UnknownName` where the map names anybody else.
    """
    if not isinstance(chosen, Mapping):
        return dict.fromkeys(agents, chosen)
    known = {*agents, *map(role_of, agents)}
    for name in chosen:
        if name not in known:
            fix = "for all agents give a Sampling" if what == "sampling" else ""
            raise UnknownName("agent", str(name), known, where=what, fix=fix)
    found = {}
    for agent in agents:
        name = agent if agent in chosen else role_of(agent)
        if name not in chosen:
            raise UserError(f"no {what} for agent {agent!r}; the map names {sorted(chosen)}")
        found[agent] = chosen[name]
    return found


MISTAKES = (TypeError, AttributeError, NameError, LookupError, ValueError, AssertionError)
"""What a slip in the code of a policy or a tool raises, and a broken machine does not."""


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
        if isinstance(env, type) or not callable(getattr(env, "play", None)):
            raise UserError(f"{env!r:.80} is no environment; give what make('math-v0') returns")
        self.env, self.seed, self.step = env, seed, step
        self.deadline_s, self.retries = deadline_s, retries
        self.policies: dict[str, Policy] = _by_agent(policies, env.possible_agents, "policies")
        for agent, policy in self.policies.items():
            if isinstance(policy, type) or not isinstance(policy, Policy):
                raise UserError(f"the policy of {agent!r} is {policy!r:.80}, with no act(request)"
                                "; give an object, such as ScriptedPolicy(function)")  # fmt: skip
        sampling = Sampling() if sampling is None else sampling
        self.sampling: dict[str, Sampling] = _by_agent(sampling, env.possible_agents, "sampling")
        for agent, one in self.sampling.items():
            if not isinstance(one, Sampling):
                raise UserError(f"the sampling of {agent!r} is {one!r:.80}; give a Sampling")
        self.tools = {name: ToolQueue(name, tool, retries) for name, tool in env.tools.items()}
        self._told = False

    async def play_all(
        self, jobs: Iterator[Job], finished: asyncio.Queue[Episode | BaseException | None]
    ) -> None:
        """Play jobs, shared with others, until none is left. Into the queue go the episodes, the
        error that ends the work early, and None at its end.
        """
        try:
            for job in jobs:
                finished.put_nowait(await self.play(job))
                await asyncio.sleep(0)  # or a policy that never waits would play all before a read
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # whatever it is, no episode is lost in silence
            stop_if_cancelled(error)
            finished.put_nowait(error)
        finally:
            finished.put_nowait(None)

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
            self._tell_of_bug(error)
            return session.fail(str(error))
        return session.episode

    def _tell_of_bug(self, fault: MachineryError) -> None:
        """Log the first fault of a rollout that looks like a mistake in a policy or tool."""
        if isinstance(fault.__cause__, MISTAKES) and not self._told:
            self._told = True
            told = "an episode failed, and others may: %s"
            logging.getLogger("mas_envs").warning(told, fault, exc_info=fault.__cause__)

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
                result = await self.tools[session.call.tool].call(session.call.args)
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
                return checked(response)
            except (UserError, KeyboardInterrupt, SystemExit, GeneratorExit):
                raise
            except BaseException as error:  # a panic of an extension module is no `Exception`
                stop_if_cancelled(error)
                if attempt == self.retries:
                    reason = f"policy of {request.agent}: {type(error).__name__}: {error}"
                    raise MachineryError(reason) from error
                await back_off(attempt)
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


async def _all(acts: Iterable[Awaitable[Response]]) -> list[Response]:
    """All results in order; the first failure ends the rest of this episode's requests."""
    tasks = [asyncio.ensure_future(act) for act in acts]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
