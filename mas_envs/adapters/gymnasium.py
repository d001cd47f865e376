"""A workflow as Gymnasium sees it: one agent learns, policies answer for the others.

    >>> from mas_envs.adapters.gymnasium import SingleAgent
    >>> env = SingleAgent("math-v0", "solver_0", policies={"verifier": my_policy})
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step("I get \\boxed{4}")

Gymnasium knows each registered environment as "mas_envs/math-v0" and so on. TorchRL's view is in
`mas_envs.adapters.torchrl`.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Coroutine, Mapping
from typing import Any

import gymnasium

from mas_envs.episodes.schema import Sampling
from mas_envs.errors import InvalidAction, UnknownName, UserError
from mas_envs.player import Player, request_for
from mas_envs.policies.base import Policies, Policy, Request, Response
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.registration import make
from mas_envs.seeds import turn_seed
from mas_envs.workflow import WorkflowEnv


class SingleAgent(gymnasium.Env[dict[str, Any], str]):
    """A workflow seen by one of its agents.

    `env` is an environment or what `mas_envs.make` takes, with its `arguments`. `agent` may be left
    out when there is only one. `policies` is one Policy or a map role → Policy (an agent id
    overrides its role), `sampling` likewise.

    Observations and actions are the workflow's. A step's reward is all that the agent earned until
    it is asked again or the episode ends, so an episode's rewards add up to the agent's return in
    the AEC view. `info` is the agent's `infos` there; `truncated` is always False.

    An episode may end before the agent was asked. Then `reset` returns an observation without
    messages, and the next `step` ignores its action and ends the episode with the reward.

    A policy that fails is tried three times; then its error is raised and the episode is lost. The
    seeds of the others' turns derive from the episode's: the same seed and actions give the same
    episode, if the policies obey their seeds.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        env: WorkflowEnv | str,
        agent: str | None = None,
        policies: Policies | None = None,
        sampling: Sampling | Mapping[str, Sampling] | None = None,
        **arguments: Any,
    ) -> None:
        if not isinstance(env, WorkflowEnv):
            env = make(env, **arguments)
        elif arguments:
            raise UserError(f"arguments {sorted(arguments)} belong to an environment's id; give "
                            "them to the environment itself")  # fmt: skip
        self.env, self.render_mode = env, env.render_mode
        self.agent = _learner(env, agent)
        self.observation_space = env.observation_space(self.agent)
        self.action_space = env.action_space(self.agent)
        self._player = _player(env, self.agent, policies, sampling)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = False  # whether step() may be called
        self._earned = 0.0  # before the first decision

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode and play until the agent is asked. `options={"task": id}`: that task."""
        self._asked = False
        self.env.reset(seed=seed, options=options)
        super().reset(seed=None if seed is None else int(seed))
        self._earned = self._play_others()
        self._asked = True
        return self.env.observe(self.agent), copy.deepcopy(self.env.infos[self.agent])

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One decision of the agent. Raises `InvalidAction`, before anything changes."""
        if not self._asked:
            raise UserError("no episode is in progress; call reset() before step()")
        if not isinstance(action, str):
            raise InvalidAction(f"{self.agent}'s action is a {type(action).__name__}, not a string")
        self._asked = False  # and so it stays when a policy fails between here and the next Ask
        reward, self._earned = self._earned, 0.0
        if not self.env.terminations[self.agent]:
            self.env.step(action)
            reward += self.env.rewards[self.agent] + self._play_others()
        over = self.env.terminations[self.agent]
        self._asked = not over
        info = copy.deepcopy(self.env.infos[self.agent])
        return self.env.observe(self.agent), reward, over, False, info

    def render(self) -> Any:
        """The conversation so far as text (render_mode "ansi"), else None."""
        return self.env.render()

    def close(self) -> None:
        """End the thread that the policies run in."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None
        self.env.close()

    def __getstate__(self) -> dict[str, Any]:
        """All but the thread: a copy, also in mid-episode or in another process, starts its own."""
        return {**vars(self), "_loop": None}

    def _play_others(self) -> float:
        """Play until the agent is asked or the episode ends; returns what the agent earned."""
        env, earned = self.env, 0.0
        while not env.terminations[self.agent] and env.agent_selection != self.agent:
            request = self._request()
            response = self._wait(self._player.act(request))
            env.respond(response, sampling=request.sampling, seed=request.seed)
            earned += env.rewards[self.agent]
        return earned

    def _request(self) -> Request:
        """What a rollout whose seed is the episode's would ask of whoever is asked now."""
        session = self.env.session
        ask, turn, episode = session.asks[0], session.turn, session.episode
        seed = turn_seed(episode.seed, 0, episode.task, 0, turn)
        return request_for(session, ask, self._player.sampling[ask.agent], seed, turn, None)

    def _wait(self, answer: Coroutine[Any, Any, Response]) -> Response:
        # In a thread, since the caller may be inside an event loop (a notebook is). One loop for
        # all answers, since a policy's connections live no longer than the loop they began in.
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(answer, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # Ctrl-C ends the request too


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())  # closes connections
    finally:
        loop.close()


def _learner(env: WorkflowEnv, agent: str | None) -> str:
    team = env.possible_agents
    if agent is None and len(team) > 1:
        raise UserError(f"the team is {team}; name the one that learns: agent={team[0]!r}")
    if agent is not None and agent not in team:
        raise UnknownName("agent", str(agent), team)
    return agent or team[0]


def _silent(request: Request) -> str:
    return ""


def _player(
    env: WorkflowEnv,
    agent: str,
    policies: Policies | None,
    sampling: Sampling | Mapping[str, Sampling] | None,
) -> Player:
    """Checks the maps, asks the policies and retries; the learner's place is filled by nobody."""
    others = [other for other in env.possible_agents if other != agent]
    if others and policies is None:
        raise UserError(f"nobody plays {others}; give policies=policy, or a map role → policy")
    named: Any = policies if isinstance(policies, Mapping) else dict.fromkeys(others, policies)
    everyone: dict[str, Policy] = {**named, agent: ScriptedPolicy(_silent)}
    if isinstance(sampling, Mapping):
        sampling = {**sampling, agent: Sampling()}
    return Player(env, everyone, sampling, 0, step=0, deadline_s=None, retries=2)
