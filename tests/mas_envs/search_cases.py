"""A shelf that answers every query, tasks, and what the agents of the search environments say."""

from __future__ import annotations

import mas_envs
from mas_envs import TaskSet
from retrievers import Passage

YES, NO = "<verify>yes</verify>", "<verify>no</verify>"
TASKS = TaskSet([("Where?", ["Orra", "River Orra"], {}), ("Who?", "Ada", {})])


class Shelf:
    """Two passages per query, made from it."""

    def __init__(self):
        self.queries = []

    def search(self, queries, k):
        self.queries += queries
        return [
            [Passage(f"{query}-{n}", f"T{n}", f"about {query}", 1.0) for n in range(2)][:k]
            for query in queries
        ]


SHELF = Shelf()


def make(id="search-v0", **kwargs):
    SHELF.queries.clear()
    kwargs = {"tasks": TASKS, "retriever": "tests.mas_envs.search_cases:SHELF"} | kwargs
    return mas_envs.make(id, **kwargs)


def shown(env):
    return env.observe(env.agent_selection)["messages"][-1]["content"]


def query(text):
    return f"<think>hm</think><search>{text}</search>"


def answer(text):
    return f"<think>so</think><answer>{text}</answer>"


def end(env):
    episode = env.episode
    return episode.reward, episode.grade.correct, episode.grade.status
