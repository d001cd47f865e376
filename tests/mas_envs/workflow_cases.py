"""Environments around a generator function, in a line."""

from __future__ import annotations

from mas_envs import Message, Outcome, TaskSet, WorkflowEnv

TASKS = TaskSet([("q", "a", {}), ("q2", "a2", {})])


def shown(text):
    return [Message("user", text)]


def make(play, team=("a_0", "b_0"), tools=None, **kwargs):
    """An environment around a generator function of (task, rng)."""

    class Env(WorkflowEnv):
        roles = ("a", "b")

        def team(self):
            return list(team)

        def play(self, task, rng):
            return play(task, rng)

    env = Env(tasks=TASKS, **kwargs)
    env.tools = tools or {}
    return env


def yields(value):
    def play(task, rng):
        yield value
        return Outcome(reward=0.0)

    return play
