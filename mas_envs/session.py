"""One episode in flight: drives a workflow's generator and records every event.

Both drivers (the AEC view and the concurrent rollout) do the same three things with a session:
read what it waits for (`asks`, `call` or `outcome`), then `answer` an Ask or `give` a tool result.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from mas_envs.contract import checked_asks, checked_call, checked_grade, finite, read_by
from mas_envs.episodes.difference import shown_otherwise
from mas_envs.episodes.plain import clean, plain
from mas_envs.episodes.schema import (
    Episode,
    Event,
    Ids,
    Message,
    Sampling,
    ToolResult,
    Turn,
)
from mas_envs.errors import ReplayMismatch, UserError, WorkflowError
from mas_envs.parsing import Parsed
from mas_envs.policies.base import Response
from mas_envs.protocol import Ask, Call, Outcome, Reply, Workflow, role_of
from mas_envs.tasks import Task

CALLS_IN_A_ROW = 10_000
"""More calls of tools than any workflow makes before it asks somebody or ends."""

LONGEST_REASON = 1_000  # characters


class Session:
    """See the module. `asks` are the unanswered Asks of the current (parallel) yield, in order."""

    def __init__(
        self,
        env: Workflow,
        task: Task,
        *,
        seed: int,
        group: int = 0,
        sample: int = 0,
        step: int = 0,
    ) -> None:
        self.env = env
        self.episode = Episode(
            env=env.spec.to_dict() if env.spec else {"id": "", "kwargs": {}},
            prompts=env.prompts_id, task=task.id, question=task.question, gold=task.answer,
            meta=task.meta, group=group, sample=sample, seed=seed, step=step,
            events=[], info={}, status="running", started=time.time(),
        )  # fmt: skip
        # The task enters the seed, so that equal seeds on two tasks are not correlated.
        rng = np.random.default_rng(np.random.SeedSequence([seed, int(task.id, 16)]))
        self._play = env.play(task, rng)
        if not isinstance(self._play, Generator):
            if inspect.iscoroutine(self._play):
                self._play.close()  # or Python warns that it was never awaited
            raise WorkflowError(f"{type(env).__name__}.play is no generator; write it as `def`, "
                                "not `async def`, and let it yield an Ask")  # fmt: skip
        self._replies: list[Reply] = []
        self._parallel = False
        self._batch = -1
        self._calls = 0  # since anybody was asked
        self.turn = self.asked_at = 0  # decisions made; and when the current Asks were frozen
        self.asks: list[Ask] = []
        self.call: Call | None = None
        self.outcome: Outcome | None = None
        self.late_rewards: dict[str, float] = {}  # by agent: turns' own rewards, known at the end
        self._advance(None)
        if self.outcome is not None:
            raise WorkflowError(f"{type(env).__name__} ended before it asked anybody")

    def _advance(self, sent: Any) -> None:
        """Resume the generator until it waits again or ends."""
        self.call, self.asks, self._replies = None, [], []
        try:
            wanted = self._play.send(sent)
        except StopIteration as end:
            self._end(end.value)
            return
        self._batch += 1
        if isinstance(wanted, Call):
            self.call = checked_call(wanted, self.env)
            self._calls += 1
            if self._calls > CALLS_IN_A_ROW:
                raise WorkflowError(f"play() called {wanted.tool} and others {CALLS_IN_A_ROW} "
                                    "times in a row and asked nobody; does it end?")  # fmt: skip
            return
        self._calls = 0
        self._parallel = isinstance(wanted, list)
        self.asks = checked_asks(wanted if isinstance(wanted, list) else [wanted], self.env)
        if self.turn + len(self.asks) > (limit := self.env.max_decisions):
            raise WorkflowError(f"play() asks for turn {limit + 1}, of {self.asks[-1].agent}; "
                                f"max_decisions is {limit}: end the episode by then, or set "
                                f"{type(self.env).__name__}.max_decisions")  # fmt: skip
        self.asked_at = self.turn

    def _end(self, outcome: Any) -> None:
        if not isinstance(outcome, Outcome):
            raise WorkflowError(f"play() returned {outcome!r:.80}, not an Outcome; let it "
                                "return Outcome(reward=…)") from None  # fmt: skip
        reward = finite(outcome.reward, "the outcome's reward is")
        grade = None if outcome.grade is None else checked_grade(outcome.grade)
        if not isinstance(outcome.info, Mapping):
            raise WorkflowError(f"the outcome's info is {outcome.info!r:.80}, not a dictionary")
        info = plain(outcome.info, "info of the outcome")
        self.outcome, episode = outcome, self.episode
        episode.reward, episode.grade, episode.info = reward, grade, info
        episode.status = "done"
        episode.seconds = time.time() - episode.started
        self._reward_turns(outcome.turn_rewards)

    def _reward_turns(self, earned: Mapping[int, float]) -> None:
        """Add what each turn earned by itself: told by the outcome, and by the shaping hooks."""
        turns, shaping = self.episode.turns, self.env.shaping
        if not isinstance(earned, Mapping):
            raise WorkflowError(f"turn_rewards is {earned!r:.80}; give {{Reply.turn: reward}}")
        if unknown := set(earned) - {turn.index for turn in turns}:
            raise WorkflowError(f"turn_rewards names {sorted(unknown)}; use the `turn` of a Reply")
        for turn in turns if earned or shaping else ():
            gave = f"gave turn {turn.index} of {turn.agent}"
            late = finite(earned.get(turn.index, 0.0), f"turn_rewards {gave}")
            if (hook := shaping.get(turn.agent) or shaping.get(turn.role)) is not None:
                late += finite(hook(self.episode, turn), f"shaping {gave}")
            turn.reward += late
            self.late_rewards[turn.agent] = self.late_rewards.get(turn.agent, 0.0) + late

    def answer(
        self,
        response: Response,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        seconds: float = 0.0,
    ) -> Turn:
        """The first unanswered Ask gets its response; after the last one, play resumes."""
        if not self.asks:
            raise WorkflowError("nobody is asked: the episode is over, failed, or waits for a tool")
        ask = self.asks[0]
        text = clean(response.text)
        parsed = read_by(ask, text)
        if parsed.status == "missing" and response.finish_reason == "length":
            parsed = Parsed(parsed.value, "truncated")
        role = role_of(ask.agent)
        turn = Turn(
            index=len(self.episode.events), batch=self._batch, agent=ask.agent, role=role,
            messages=tuple(ask.messages), text=text, value=plain(parsed.value, "parsed value"),
            parse_status=parsed.status,
            reward=0.0 if parsed.status == "ok" else -self.env.invalid_penalty[role],
            model=clean(response.model), sampling=sampling or Sampling(), seed=seed,
            template=clean(response.template), finish_reason=clean(response.finish_reason),
            versions=response.versions, prompt_ids=response.prompt_ids, ids=response.ids,
            log_probs=response.log_probs, seconds=seconds,
            prompt_tokens=_count(response.prompt_ids, response.prompt_tokens),
            response_tokens=_count(response.ids, response.response_tokens),
        )  # fmt: skip
        self.episode.events.append(turn)
        self.turn += 1
        self.asks = self.asks[1:]
        self._replies.append(Reply(text, parsed.value, parsed.status, turn.index))
        if not self.asks:
            self._advance(self._replies if self._parallel else self._replies[0])
        return turn

    def give(self, result: Any, seconds: float = 0.0) -> ToolResult:
        """The pending Call gets its result."""
        call = self.call
        if call is None:
            raise WorkflowError("no tool call is pending")
        event = ToolResult(
            index=len(self.episode.events), batch=self._batch, tool=call.tool, args=call.args,
            result=plain(result, f"result of {call.tool}"), seconds=seconds,
        )  # fmt: skip
        self.episode.events.append(event)
        # A copy of what is recorded: a replay from disk feeds the same, and play may change it.
        self._advance(plain(event.result, call.tool))
        return event

    def fail(self, reason: str) -> Episode:
        """End as a failed episode: turns kept, no reward, in no statistic (design, section 4)."""
        self._play.close()
        # Whoever failed may have quoted anything, and at any length.
        self.episode.status, self.episode.reason = "failed", clean(reason)[:LONGEST_REASON]
        self.episode.seconds = time.time() - self.episode.started
        return self.episode

    def expect(self, event: Event) -> None:
        """Raises `ReplayMismatch` unless the workflow now asks what was asked for that event."""
        if isinstance(event, ToolResult):
            now = (self.call.tool, self.call.args) if self.call else None
            if now != (event.tool, event.args):
                raise ReplayMismatch(f"event {event.index}: recorded {event.tool}({event.args}), "
                                     f"now {now}")  # fmt: skip
            return
        now_asked: tuple[str, tuple[Message, ...]] | None = None
        if self.asks:
            now_asked = (self.asks[0].agent, tuple(self.asks[0].messages))
        if now_asked != (event.agent, event.messages):
            now_agent, now_shown = now_asked or ("nobody", ())
            raise ReplayMismatch(f"event {event.index}: {event.agent} was shown something else "
                                 f"than {now_agent} is now: "
                                 + shown_otherwise(event.messages, now_shown))  # fmt: skip

    def repeat(self, event: Event) -> None:
        """Feed one recorded event. Raises `ReplayMismatch` if the workflow now asks otherwise."""
        self.expect(event)
        if isinstance(event, ToolResult):
            self.give(event.result, event.seconds)
            return
        response = Response(
            text=event.text, finish_reason=event.finish_reason, prompt_ids=event.prompt_ids,
            ids=event.ids, log_probs=event.log_probs, model=event.model, versions=event.versions,
            template=event.template, prompt_tokens=event.prompt_tokens,
            response_tokens=event.response_tokens,
        )  # fmt: skip
        self.answer(response, sampling=event.sampling, seed=event.seed, seconds=event.seconds)


def _count(ids: Ids | None, reported: int) -> int:
    return reported if ids is None else len(ids)


def replay(env: Workflow, episode: Episode, decision: int | None = None) -> Session:
    """A session of `env` that stands where the episode stood before its event `decision`.

    None replays all its events. Raises `ReplayMismatch` when the environment is of
    another class, or asks something else up to there, that event included; `UserError` when there
    is no such event.
    """
    if not isinstance(episode, Episode):
        raise UserError(f"{episode!r:.80} is no Episode; read_episodes gives them")
    if decision is not None and decision not in range(len(episode.events) + 1):
        raise UserError(f"no event {decision!r:.40}; the episode has {len(episode.events)}")
    now_in = env.spec.to_dict().get("entry_point") if env.spec else None
    was_in = episode.env.get("entry_point")
    if now_in and was_in and now_in != was_in:
        raise ReplayMismatch(f"recorded in {episode.env.get('id')} ({was_in}), not {now_in}")
    task = Task(id=episode.task, question=episode.question, answer=episode.gold, meta=episode.meta)
    session = Session(
        env, task, seed=episode.seed, group=episode.group, sample=episode.sample, step=episode.step
    )
    session.episode.provenance = dict(episode.provenance)
    for event in episode.events[:decision]:
        session.repeat(event)
    if decision is not None and decision < len(episode.events):
        session.expect(episode.events[decision])
    if decision is None and episode.status == "done":
        now = session.episode
        if session.outcome is None or (now.reward, now.grade) != (episode.reward, episode.grade):
            raise ReplayMismatch(f"after event {len(episode.events)}: recorded reward "
                                 f"{episode.reward:g} and {episode.grade}, now {now.reward:g} and "
                                 f"{now.grade if session.outcome else 'not over'}")  # fmt: skip
        for ours, theirs in zip(now.turns, episode.turns, strict=True):
            if ours.reward != theirs.reward:
                raise ReplayMismatch(f"event {ours.index}: recorded reward {theirs.reward:g}, "
                                     f"now {ours.reward:g}")  # fmt: skip
    return session
