"""A workflow is a generator: who speaks next, what they see, what the team earned.

    class Guess(WorkflowEnv):
        roles = ("guesser",)

        def play(self, task, rng):
            reply = yield Ask("guesser_0", [Message("user", task.question)])
            return Outcome(reward=float(reply.text == task.answer))

`play` must be a pure function of the task, the generator `rng`, the replies and the tool results:
then every episode can be replayed to any decision and forked there. One generator, two drivers:
`WorkflowEnv` itself is a PettingZoo `AECEnv`; `mas_envs.rollout` plays hundreds concurrently.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

from mas_envs.episodes.plain import plain
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.text import conversation_text
from mas_envs.errors import InvalidAction, UserError, WorkflowError
from mas_envs.protocol import Ask, Call, Outcome, Play, Reply, role_of
from mas_envs.session import Session
from mas_envs.spaces import Language, conversation
from mas_envs.tasks import Task, TaskSet, load_tasks
from mas_envs.tools import Tool, call_now

__all__ = ["Ask", "Call", "Outcome", "Play", "Reply", "WorkflowEnv", "role_of"]


def _checked_seed(seed: Any) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise UserError(f"seed {seed!r}; it must be a whole number from 0 up")
    return number


def _checked_options(options: Any) -> Mapping[str, Any]:
    """The options of `reset`. Unknown ones are ignored, as PettingZoo's tests want, but not a
    misspelt "task": it would quietly play another one.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise UserError(f"options {options!r:.80}; give a dictionary such as {{'task': id}}")
    for key in options:
        if key != "task" and str(key).casefold().startswith("task"):
            raise UserError(f"options key {key!r}; write options={{'task': id}} to choose the task")
    return options


class WorkflowEnv(AECEnv[str, dict[str, Any], str]):  # type: ignore[misc]
    """Base of all environments. A subclass sets `roles` and writes `play`.

    AEC view: observations are `{"messages": ({"role", "content"}, …), "turn": int}`, actions are
    strings; any string is a step. Rewards: the acting agent gets its own turn's reward (minus the
    invalid-action penalty when its text did not parse), everybody gets the team's at the end.
    Dead steps are handled here. `infos[agent]` tells `parse_status` and `invalid` of its last turn
    and, at the end, `grade` and the outcome's info.

    Arguments: `tasks` (a `TaskSet`, or the keywords of `load_tasks`), `prompts` (a shipped set or a
    TOML file), `invalid_penalty` (for all, or per role), `render_mode` (None or "ansi").
    """

    roles: ClassVar[tuple[str, ...]] = ()
    default_tasks: ClassVar[Mapping[str, Any]] = {"source": "arith", "split": "train"}
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "is_parallelizable": False}  # noqa: RUF012
    max_turns: int = 1_000
    prompts_id: str = ""
    """Identifies the prompt set; recorded in every episode."""

    def __init__(
        self,
        *,
        tasks: TaskSet | Mapping[str, Any] | None = None,
        invalid_penalty: float | Mapping[str, float] = 0.0,
        render_mode: str | None = None,
    ) -> None:
        super().__init__()
        if render_mode not in (None, "ansi"):
            raise UserError(f"render_mode {render_mode!r}; the only one is 'ansi'")
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "name": type(self).__name__}
        self.possible_agents = self.team()
        self.agents: list[str] = []
        self.spec: Any = None
        if not isinstance(tasks, TaskSet | Mapping | None):
            raise UserError(f"tasks {tasks!r:.80}; give a TaskSet or {{'source': …}}")
        self._tasks = tasks
        known = {role_of(agent) for agent in self.possible_agents}
        if isinstance(invalid_penalty, Mapping):
            if unknown := set(invalid_penalty) - known:
                raise UserError(f"invalid_penalty names {sorted(unknown)}; roles: {sorted(known)}")
            penalties = {role: invalid_penalty.get(role, 0.0) for role in known}
        else:
            penalties = dict.fromkeys(known, invalid_penalty)
        for penalty in penalties.values():
            if not isinstance(penalty, int | float) or not 0 <= penalty < math.inf:
                raise UserError(f"invalid_penalty {penalty!r}; it must be a number from 0 up")
        self.invalid_penalty: Mapping[str, float] = penalties
        self.tools: dict[str, Tool] = {}
        self._observation_spaces = {a: conversation(self.max_turns) for a in self.possible_agents}
        self._action_spaces = {agent: Language() for agent in self.possible_agents}
        self._seeds = np.random.SeedSequence()
        self._current: Session | None = None

    # ---- what a subclass writes ------------------------------------------------------------

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """The workflow: yield `Ask`, `Call` or a list of `Ask`s, return an `Outcome`."""
        raise WorkflowError(f"{type(self).__name__} has no play()")

    def team(self) -> list[str]:
        """The agent ids; one per role unless a subclass wants more."""
        return [f"{role}_0" for role in self.roles]

    # ---- the PettingZoo view -----------------------------------------------------------------

    @property
    def tasks(self) -> TaskSet:
        """The environment's tasks, loaded on first use."""
        if not isinstance(self._tasks, TaskSet):
            self._tasks = load_tasks(**(self._tasks or self.default_tasks))
        return self._tasks

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The conversation space of that agent."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Text of any kind."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode. `options={"task": id}` names the task; otherwise the seed picks it."""
        chosen = _checked_options(options)
        if seed is None:
            seeds = self._seeds
            episode_seed = int(seeds.spawn(1)[0].generate_state(1)[0])
        else:
            episode_seed = _checked_seed(seed)
            seeds = np.random.SeedSequence(episode_seed)
        if "task" in chosen:
            task = self.tasks.by_id(chosen["task"])
        else:
            pick = np.random.default_rng(np.random.SeedSequence([episode_seed, 0]))
            task = self.tasks[int(pick.integers(len(self.tasks)))]
        self._current, self._seeds = Session(self, task, seed=episode_seed), seeds
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._skip_agent_selection = None
        self._to_next_ask()

    def observe(self, agent: str) -> dict[str, Any]:
        """What that agent is shown now; no messages while it is not being asked."""
        for ask in self._session.asks:
            if ask.agent == agent:
                shown = tuple({"role": m.role, "content": m.content} for m in ask.messages)
                return {"messages": shown, "turn": self._session.asked_at}
        return {"messages": (), "turn": self._session.turn}

    def step(self, action: str | None) -> None:
        """One decision of `agent_selection`. Raises `InvalidAction`, before anything changes."""
        if not self.agents:
            raise InvalidAction("the episode is over; call reset()")
        agent = self.agent_selection
        if self.terminations[agent]:
            if action is not None:
                raise InvalidAction(f"{agent} is done; its only valid action is None")
            self._was_dead_step(None)
            return
        if not isinstance(action, str):
            raise InvalidAction(f"{agent}'s action is a {type(action).__name__}, not a string")
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        turn = self._session.answer_text(action)
        self.rewards[agent] = turn.reward
        self.infos[agent] = {
            "parse_status": turn.parse_status,
            "invalid": turn.parse_status != "ok",
        }
        self._to_next_ask()
        self._accumulate_rewards()

    def _to_next_ask(self) -> None:
        session = self._session
        while session.call is not None:
            args = plain(session.call.args, session.call.tool)  # a tool may change its own copy
            session.give(call_now(self.tools[session.call.tool], args))
        if session.outcome is None:
            self.agent_selection = session.asks[0].agent
            return
        episode = session.episode
        grade = msgspec.to_builtins(episode.grade) if episode.grade else None
        for agent in self.agents:
            self.rewards[agent] += episode.reward
            self.terminations[agent] = True
            info = plain(episode.info, "info")
            self.infos[agent] = {**self.infos[agent], **info, "grade": grade}
        self.agent_selection = self.agents[0]

    @property
    def _session(self) -> Session:
        if self._current is None:
            raise UserError("there is no episode yet; call reset() first")
        return self._current

    @property
    def episode(self) -> Episode:
        """The episode so far, in the form that everything downstream reads."""
        return self._session.episode

    def render(self) -> str | None:
        """The conversation so far as text (render_mode "ansi"), else None."""
        return conversation_text(self.episode) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Nothing to release."""
