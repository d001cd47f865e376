"""The search environments turn by turn as the Dr. MAS reference plays them (`compat="drmas"`).

What differs from ours, beside the readings in `mas_envs.drmas`: an answer agent that writes no
answer tags does not end the episode; on the last turn a "no" is followed by nobody; a query may
smuggle an answer in; and what is scored is the last answer block anywhere in the history of
actions and retrieved text.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from mas_envs import drmas
from mas_envs.episodes.schema import Message
from mas_envs.parsing import MISSING, Parsed
from mas_envs.protocol import Ask, Call, Play, Reply
from mas_envs.search.base import SearchWorkflow
from mas_envs.tasks import Task


class _History:
    """What the team did and what came back, as text that is scored and as steps to show."""

    def __init__(self, env: SearchWorkflow, task: Task) -> None:
        self.env, self.task = env, task
        self.texts: list[str] = []
        self.steps: list[dict[str, str]] = []
        self.info: dict[str, Any] = {"queries": [], "turns": 0}

    def shown(self, agent: str, remark: str = "") -> tuple[Message, ...]:
        """What that agent is shown."""
        return self.env.shown(agent, self.task, len(self.steps) + 1, self.steps, remark)

    def act(self, action: str) -> Generator[Call, Any, bool]:
        """Take one action; True when it ends the episode."""
        self.info["turns"] += 1
        turn = self.info["turns"]
        self.texts.append(action)
        if turn >= self.env.max_turns or ("<answer>" in action and "</answer>" in action):
            return True
        query, found = drmas.query(action), ""
        if query is not None:
            self.info["queries"].append(query)
            found = drmas.information((yield Call("search", {"query": query, "k": self.env.top_k})))
            self.texts.append(found)
        step = {"turn": str(turn), "action": action, "passages": found.strip()}
        self.steps.append(step | {"query": query or ""})
        return False

    def end(self) -> Play:
        """Score the last answer block of the whole history."""
        found = drmas.last_answer(self.texts)
        final = None if found is None else Reply("", drmas.verbatim(found), "ok", -1)
        return (yield from self.env.end(self.task, final, self.info))


def team(env: SearchWorkflow, task: Task) -> Play:
    """search-v0: verifier, then the search or the answer agent."""
    history = _History(env, task)
    history.info["verdicts"] = verdicts = []
    over = False
    while not over:
        verdict = yield Ask(
            "verifier_0", history.shown("verifier_0"), parse=drmas.tagged("verify", think=False)
        )
        verdicts.append("yes" if drmas.suffices(verdict.text) else "no")
        role = "answer" if verdicts[-1] == "yes" else "search"
        action = ""
        if role == "answer" or history.info["turns"] + 1 < env.max_turns:
            shown = history.shown(f"{role}_0", drmas.review(verdict.text))
            reply = yield Ask(f"{role}_0", shown, parse=drmas.tagged(role, think=True))
            inner = drmas.block(role, reply.text)
            action = "" if inner is None else f"<{role}>{inner}</{role}>"
        over = yield from history.act(action)
    return (yield from history.end())


def single(env: SearchWorkflow, task: Task) -> Play:
    """search-single-v0: one agent's action per turn."""
    history = _History(env, task)
    over = False
    while not over:
        reply = yield Ask("searcher_0", history.shown("searcher_0"), parse=_valid_action)
        over = yield from history.act(drmas.single_action(reply.text)[0])
    return (yield from history.end())


def _valid_action(text: str) -> Parsed:
    action, valid = drmas.single_action(text)
    return Parsed(action, "ok") if valid else MISSING
