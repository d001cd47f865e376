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

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

from mas_envs.arguments import check_choice, check_count, penalties, reset_options, shaping_hooks
from mas_envs.contract import checked_team
from mas_envs.episodes.plain import plain
from mas_envs.episodes.schema import Episode, Sampling, Turn
from mas_envs.episodes.text import conversation_text
from mas_envs.errors import InvalidAction, UnknownName, UserError, WorkflowError
from mas_envs.policies.base import Response, checked
from mas_envs.prompts import PromptSet, load_prompts
from mas_envs.protocol import Play, Shaping, role_of
from mas_envs.session import Session, replay
from mas_envs.spaces import Language, conversation
from mas_envs.tasks import Task, TaskSet, load_tasks
from mas_envs.tools import Tool, call_now


class WorkflowEnv(AECEnv[str, dict[str, Any], str]):  # type: ignore[misc]
    """Base of all environments. A subclass sets `roles` and writes `play`.

    An environment is a PettingZoo `AECEnv`: one agent is asked at a time (`agent_selection`), any
    string is a step, and dead steps are handled here. A parser reads what the agent writes; where
    it finds nothing, several things that differ, or something cut off, the answer is invalid
    (`missing`, `ambiguous`, `truncated`; see `mas_envs.parsing`) and the episode goes on.

    Observations:
        messages: the chat that the agent is shown, a tuple of {"role", "content"}; empty while it
            is not asked.
        turn: how many decisions there had been when it was asked.

    Rewards:
        team: to every agent, when the episode ends.
        turn: to the agent alone. At once, minus `invalid_penalty` if its answer is invalid; when
            the episode ends, what the workflow (`Outcome.turn_rewards`) and `shaping` add.

    Info:
        parse_status: how the agent's last answer was read: "ok", "missing", "ambiguous" or
            "truncated".
        invalid: whether that was not "ok".
        grade: when the episode ends, the verdict on the team's answer: correct, status, answer,
            reason, grader. Beside it stands the workflow's own info.

    Arguments:
        tasks: a `TaskSet`, or the keywords of `load_tasks`: {"source": "train.jsonl"}.
        prompts: a set by name, a TOML file, or a mapping of roles or agents to them; whom it does
            not name keeps the default.
        invalid_penalty: what an invalid answer costs, from 0 up; a number or one per role.
        shaping: role or agent → "module:function". It is called with the finished episode and each
            turn of theirs; what it returns is added to that turn's own reward.
        render_mode: "ansi" makes `render()` return the conversation as text.
    """

    roles: ClassVar[tuple[str, ...]] = ()
    default_tasks: ClassVar[Mapping[str, Any]] = {"source": "arith", "split": "train"}
    default_prompts: ClassVar[Path | None] = None
    """The TOML file of the prompts; its folder holds the sets that can be named."""
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "is_parallelizable": False}  # noqa: RUF012
    max_decisions: int = 1_000
    """At most so many turns in one episode; bounds the observation's "turn"."""
    prompts: PromptSet
    """The texts that agents are shown, where `default_prompts` is set."""
    prompts_id: str = ""
    """Identifies the prompts; recorded in every episode."""

    def __init__(
        self,
        *,
        tasks: TaskSet | Mapping[str, Any] | None = None,
        prompts: str | Path | Mapping[str, str] | None = None,
        invalid_penalty: float | Mapping[str, float] = 0.0,
        shaping: Mapping[str, str | Shaping] | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__()
        self.render_mode = check_choice("render_mode", render_mode, (None, "ansi"))
        self.metadata = {**self.metadata, "name": type(self).__name__}
        if not isinstance(tasks, TaskSet | Mapping | None):
            source = tasks if isinstance(tasks, str) else "train.jsonl"
            raise UserError(f'tasks {tasks!r:.80}; give {{"source": "{source}"}}, or '
                            "TaskSet([(question, answer, {}), …])")  # fmt: skip
        self.possible_agents = checked_team(type(self).__name__, self.roles, self.team)
        self.agents: list[str] = []
        self.spec: Any = None
        self._tasks = tasks
        roles = {role_of(agent) for agent in self.possible_agents}
        self.invalid_penalty = penalties(invalid_penalty, roles)
        self.shaping = shaping_hooks(shaping, {*roles, *self.possible_agents})
        if self.default_prompts is not None:
            chosen = self.default_prompts.stem if prompts is None else prompts
            self.prompts = load_prompts(chosen, self.default_prompts, self.possible_agents)
            self.prompts_id = self.prompts.id
        elif prompts is not None:
            raise UserError(f"prompts {prompts!r:.80}; {type(self).__name__} has no prompt sets "
                            "(set default_prompts)")  # fmt: skip
        self.tools: dict[str, Tool] = {}
        self._observation_spaces = {
            agent: conversation(self.max_decisions) for agent in self.possible_agents
        }
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
            chosen = dict(self._tasks or {})
            # {"split": "dev"} is the default source's: search-v0 has no use for arith's problems.
            self._tasks = load_tasks(**(chosen if "source" in chosen else
                                        {**self.default_tasks, **chosen}))  # fmt: skip
        return self._tasks

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The conversation space of that agent."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Text of any kind."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode. `options={"task": id}` names the task; otherwise the seed picks it."""
        chosen = reset_options(options)
        if seed is None:
            seeds = self._seeds
            episode_seed = int(seeds.spawn(1)[0].generate_state(1)[0])
        else:
            episode_seed = check_count("seed", seed, 0)
            seeds = np.random.SeedSequence(episode_seed)
        if "task" in chosen:
            task = self.tasks.by_id(chosen["task"])
        else:
            if not len(self.tasks):
                raise UserError(f"no tasks to play in {self.tasks.spec}; give some: tasks=…")
            pick = np.random.default_rng(np.random.SeedSequence([episode_seed, 0]))
            task = self.tasks[int(pick.integers(len(self.tasks)))]
        self._seeds = seeds
        self._stand_at(Session(self, task, seed=episode_seed))

    def restore(self, episode: Episode, decision: int | None = None) -> None:
        """Stand where `episode` stood before its event `decision` (None: at its end).

        In one that was not over (a node of a tree search) its length, `len(episode.events)`, stands
        where it was left. `episode` itself stays as it is.

        What the agent selected there observes is what it was shown then, byte for byte; `step`
        goes on from there. Where the event is a tool's, the tool is called again. Raises
        `ReplayMismatch` or `UserError` as `mas_envs.replay` does.
        """
        self._stand_at(replay(self, episode, decision))

    def _stand_at(self, session: Session) -> None:
        self._current = session
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._skip_agent_selection = None
        for turn in session.episode.turns:  # none after a reset
            self._accumulate_rewards()
            self._book(turn)
        self._to_next_ask()
        self._accumulate_rewards()

    def __getstate__(self) -> dict[str, Any]:
        """All but the generator in flight, which Python cannot copy: its episode stands for it."""
        session = self._current
        return {**vars(self), "_current": None if session is None else session.episode}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Replays the episode to where it stood, so that a copy goes on as the original would."""
        self.__dict__.update(state)
        if (episode := state["_current"]) is not None:
            self._current = replay(self, episode, len(episode.events))

    def observe(self, agent: str) -> dict[str, Any]:
        """What that agent is shown now; no messages while it is not being asked."""
        for ask in self.session.asks:
            if ask.agent == agent:
                shown = tuple({"role": m.role, "content": m.content} for m in ask.messages)
                return {"messages": shown, "turn": self.session.asked_at}
        if agent not in self.possible_agents:
            raise UnknownName("agent", str(agent), self.possible_agents)
        return {"messages": (), "turn": self.session.turn}

    def last(self, observe: bool = True) -> Any:
        """PettingZoo's `last`. Raises `UserError` before a reset."""
        self.session  # noqa: B018
        return super().last(observe)

    def step(self, action: str | None) -> None:
        """One decision of `agent_selection`. Raises `InvalidAction`, before anything changes."""
        self.respond(None if action is None else Response(text=action))

    def respond(
        self, response: Response | None, *, sampling: Sampling | None = None, seed: int = 0
    ) -> None:
        """`step` with all that a policy said: the episode keeps its tokens and log-probs."""
        if not self.agents:
            raise InvalidAction("the episode is over; call reset()")
        agent = self.agent_selection
        if self.terminations[agent]:
            if response is not None:
                raise InvalidAction(f"{agent} is done; its only valid action is None")
            self._was_dead_step(None)
            return
        text = None if response is None else response.text
        if not isinstance(text, str):
            fix = "give the text that it says (None is for an agent that is done)"
            raise InvalidAction(f"{agent}'s action is a {type(text).__name__}, not a string; {fix}")
        assert response is not None
        checked(response)
        self._book(self.session.answer(response, sampling=sampling, seed=seed))
        self._to_next_ask()
        self._accumulate_rewards()

    def _book(self, turn: Turn) -> None:
        """What the turn earned at once, and its info. `turn.reward` may hold more by now: what
        the end of the episode added, which `_to_next_ask` books.
        """
        invalid = turn.parse_status != "ok"
        self._cumulative_rewards[turn.agent] = 0.0
        self._clear_rewards()
        self.rewards[turn.agent] = -self.invalid_penalty[turn.role] if invalid else 0.0
        self.infos[turn.agent] = {"parse_status": turn.parse_status, "invalid": invalid}

    def _to_next_ask(self) -> None:
        session = self.session
        while session.call is not None:
            args = plain(session.call.args, session.call.tool)  # a tool may change its own copy
            session.give(call_now(self.tools[session.call.tool], args))
        if session.outcome is None:
            self.agent_selection = session.asks[0].agent
            return
        episode = session.episode
        grade = msgspec.to_builtins(episode.grade) if episode.grade else None
        for agent in self.agents:
            self.rewards[agent] += episode.reward + session.late_rewards.get(agent, 0.0)
            self.terminations[agent] = True
            info = plain(episode.info, "info")
            self.infos[agent] = {**self.infos[agent], **info, "grade": grade}
        self.agent_selection = self.agents[0]

    @property
    def session(self) -> Session:
        """The episode in flight: who is asked what now. Raises `UserError` before a reset."""
        if self._current is None:
            raise UserError("there is no episode yet; call reset() first")
        return self._current

    @property
    def episode(self) -> Episode:
        """The episode so far, in the form that everything downstream reads; `step` adds to it."""
        return self.session.episode

    def render(self) -> str | None:
        """The conversation so far as text (render_mode "ansi"), else None."""
        return conversation_text(self.episode) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Nothing to release."""
