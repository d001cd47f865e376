"""A workflow with every kind of yield, and a policy that fails now and then."""

from __future__ import annotations

import asyncio

import numpy as np

from mas_envs import Ask, Call, Message, Outcome, Response, TaskSet, WorkflowEnv

TASKS = TaskSet([(f"q{n}", "a", {}) for n in range(40)])


class Chat(WorkflowEnv):
    """Ask, call, ask both at once."""

    roles = ("a", "b")

    def __init__(self, tool=None):
        super().__init__(tasks=TASKS)
        self.tools = {"tool": tool or (lambda batch: [0] * len(batch))}

    def play(self, task, rng):
        shown = [Message("user", task.question)]
        yield Ask("a_0", shown)
        yield Call("tool", {"q": task.question})
        yield [Ask("a_0", shown), Ask("b_0", shown)]
        return Outcome(reward=1.0)


def question(request):
    return request.messages[0].content


class Flaky:
    """Fails the first `times` attempts at each request that `which` chooses."""

    def __init__(self, times, which=lambda request: True, error=None):
        self.times, self.which = times, which
        self.error = error if error is not None else RuntimeError("engine hiccup")
        self.attempts = {}

    async def act(self, request):
        self.attempts[request.key] = tried = self.attempts.get(request.key, 0) + 1
        await asyncio.sleep(0.01)
        if self.which(request) and tried <= self.times:
            raise self.error
        return Response(text="x")


class Hangs:
    """Hangs for ever at the requests that `which` chooses; notes which of them were cancelled."""

    def __init__(self, which):
        self.which, self.cancelled = which, []

    async def act(self, request):
        await asyncio.sleep(0.5)
        if self.which(request):
            try:
                await asyncio.sleep(1e9)
            except asyncio.CancelledError:
                self.cancelled.append(request.key)
                raise
        return Response(text="x")


class Swallows:
    """Answers its own cancellation with a Response, as an engine that aborts may."""

    async def act(self, request):
        try:
            await asyncio.sleep(1e5)
        except asyncio.CancelledError:
            return Response(text="", finish_reason="abort")
        return Response(text="x")


def tasks_of(count):
    return TaskSet([(f"q{n}", f"a{n}", {}) for n in range(count)])


def latency(request):
    """Heavy-tailed seconds, a pure function of the request."""
    return float(np.random.default_rng(request.seed).pareto(1.5))


def say(request):
    return f"{request.agent}:{request.seed % 97}"
