"""Stored conversations, driven through their environment once more with new grades."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec

from benchmarks.membership import RUN, run_id
from benchmarks.run_folder import Settings
from mas_envs.episodes.schema import Episode, ToolResult, Turn
from mas_envs.errors import UserError
from mas_envs.grading.processes.batch import grade_each
from mas_envs.policies.base import Response
from mas_envs.session import Session
from mas_envs.tasks import Task
from mas_envs.tools import Tool, call_now, math_grader, qa_grader
from mas_envs.workflow import WorkflowEnv

_KNOWN: dict[Tool, str] = {math_grader: "math", qa_grader: "qa"}


class _Conversation:
    """A recorded episode, driven through the environment up to its next grade."""

    def __init__(
        self, env: WorkflowEnv, episode: Episode, settings: Settings, provenance: dict[str, str]
    ) -> None:
        self.env, self.episode, self.settings = env, episode, settings
        self.provenance = provenance
        self.events: list[Turn | ToolResult] = []
        self.call: dict[str, Any] | None = None
        """The arguments of the grade it waits for."""
        self._changed = False
        if episode.status == "done":
            task = Task(
                id=episode.task, question=episode.question, answer=episode.gold, meta=episode.meta
            )
            self.session = Session(
                env, task, seed=episode.seed, group=episode.group, sample=episode.sample
            )
            self._go_on()

    def _go_on(self) -> None:
        """Feed what is recorded, until a grade is asked for or all is fed."""
        for event in self.episode.events[len(self.events) :]:
            if isinstance(event, Turn):
                self._say(event)
            elif self.session.call is None or self.session.call.tool != event.tool:
                self._refuse(f"event {event.index}, a call of {event.tool!r}, is not asked for")
            elif event.tool == "grade":
                self.call = self.session.call.args
                return
            else:
                self.events.append(event)
                self.session.give(event.result)
        if self.session.outcome is None:
            self._refuse("it ends too early")

    def _say(self, turn: Turn) -> None:
        if self._changed:
            self._refuse("it goes on after a grade that is another one now, so the agents would "
                         "have been shown something else")  # fmt: skip
        if not self.session.asks or self.session.asks[0].agent != turn.agent:
            self._refuse(f"event {turn.index}, a turn of {turn.agent}, is not asked for")
        self.events.append(turn)
        response = Response(
            text=turn.text, finish_reason=turn.finish_reason, model=turn.model,
            template=turn.template, prompt_tokens=turn.prompt_tokens,
            response_tokens=turn.response_tokens,
        )  # fmt: skip
        self.session.answer(response, sampling=turn.sampling, seed=turn.seed, seconds=turn.seconds)

    def give(self, result: Any) -> None:
        """The grade that it waits for; any later one is made at once."""
        while self.call is not None:
            recorded = self.episode.events[len(self.events)]
            assert isinstance(recorded, ToolResult)
            args, self.call = self.call, None
            self._changed |= _verdict_of(result) != _verdict_of(recorded.result)
            self.events.append(msgspec.structs.replace(recorded, args=args, result=result))
            self.session.give(result)
            self._go_on()
            if self.call is not None:
                result = call_now(self.env.tools["grade"], self.call)

    def rescored(self) -> Episode:
        """The episode as it is now."""
        env, provenance = self.settings.env, self.episode.provenance | self.provenance
        if self.episode.status != "done":
            return msgspec.structs.replace(self.episode, env=env, provenance=provenance)
        now = self.session.episode
        turns = iter(now.turns)
        events = [self._as_read(e, next(turns)) if isinstance(e, Turn) else e for e in self.events]
        return msgspec.structs.replace(
            self.episode, env=env, events=events, reward=now.reward, grade=now.grade,
            info=now.info, provenance=provenance,
        )  # fmt: skip

    @staticmethod
    def _as_read(recorded: Turn, now: Turn) -> Turn:
        return msgspec.structs.replace(
            recorded, reward=now.reward, parse_status=now.parse_status, value=now.value
        )

    def _refuse(self, why: str) -> None:
        episode = self.episode
        raise UserError(f"task {episode.task}, sample {episode.sample} cannot be graded again in "
                        f"{episode.env.get('id')}: {why}")  # fmt: skip


def _verdict_of(result: Any) -> Any:
    return (result.get("correct"), result.get("score")) if isinstance(result, Mapping) else result


def regraded(
    episodes: Iterable[Episode], env: WorkflowEnv, settings: Settings, processes: int | None
) -> Iterator[tuple[Episode, Episode]]:
    """(recorded, rescored) in order. Known graders run on all cores, others in this process."""
    tool = env.tools["grade"]
    grader = _KNOWN.get(tool)
    waiting: deque[tuple[_Conversation, bool]] = deque()  # and whether its grade is under way
    options: dict[str, Any] | None = None
    provenance = {RUN: run_id(settings)}

    def driven() -> Iterator[_Conversation]:
        nonlocal options
        for episode in episodes:
            one = _Conversation(env, episode, settings, provenance)
            if one.call is not None and options is None:
                options = _options(one.call)
            shared = grader is not None and one.call is not None and _options(one.call) == options
            waiting.append((one, shared))
            yield one

    def pairs(driven: Iterator[_Conversation]) -> Iterator[tuple[str, Any]]:
        for one in driven:
            if waiting[-1][1] and one.call is not None:
                yield one.call["response"], one.call["gold"]

    def ready() -> Iterator[tuple[Episode, Episode]]:
        """Those at the front that wait for no process."""
        while waiting and not waiting[0][1]:
            one, _ = waiting.popleft()
            if one.call is not None:
                one.give(call_now(tool, one.call))
            yield one.episode, one.rescored()

    conversations = driven()
    for _ in conversations:  # until the first grade, which says with which options
        if waiting[-1][1]:
            break
        yield from ready()
    if waiting:
        yield from ready()
        first = waiting[0][0].call
        assert first is not None and grader is not None and options is not None
        rest = pairs(conversations)
        asked = chain([(first["response"], first["gold"])], rest)
        for grade in grade_each(asked, grader=grader, processes=processes, **options):
            yield from ready()
            one, _ = waiting.popleft()
            one.give(msgspec.to_builtins(grade))
            yield one.episode, one.rescored()
        yield from ready()


def _options(args: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in args.items() if key not in ("response", "gold")}
