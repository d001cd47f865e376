"""search-v0 and its single-agent baseline, search-single-v0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mas_envs.arguments import check_compat, readings
from mas_envs.parsing import after_think, answer, one_of, search_query, tag
from mas_envs.protocol import Ask, Play
from mas_envs.search import reference
from mas_envs.search.base import PROMPTS, SearchWorkflow
from mas_envs.tasks import Task

sufficiency = tag("verify", ("yes", "no"))
search_or_answer = one_of(search=search_query, answer=answer)
only_answer = one_of(answer=answer)


class SearchEnv(SearchWorkflow):
    """A verifier routes to a search agent or an answer agent, over several turns.

    After Dr. MAS (arXiv 2602.08847), section 5. Each turn the verifier says whether the information
    suffices: no → the search agent writes a query, whose passages the whole team sees from then on;
    yes → the answer agent answers, which ends the episode. A "no" on the last turn ends it
    unanswered, unless `force_answer` is set: then the answer agent is asked there at once.

    Actions:
        verifier: `<verify>yes</verify>` or `<verify>no</verify>`, in capitals, too; invalid when
            there is neither, both, or one that is never closed.
        search: `<search>query</search>`; invalid when there is none, two that differ, or one that
            is never closed. An invalid query finds nothing.
        answer: the last `<answer>…</answer>`; invalid when there is none, or it is empty or never
            closed. An invalid answer is wrong.

    Info:
        verdicts: the verdicts as they were read, each "yes" or "no"; "forced" where none was asked.

    Arguments:
        malformed_verdict: what an invalid verdict counts as, "no" or "yes"; or a mapping of
            `missing`, `ambiguous` and `truncated` to them.
    """

    roles = ("verifier", "search", "answer")
    default_prompts = PROMPTS / "default.toml"

    def __init__(self, *, malformed_verdict: str | Mapping[str, str] = "no", **common: Any) -> None:
        self.malformed_verdict = readings("malformed_verdict", malformed_verdict, ("no", "yes"))
        super().__init__(**common)
        check_compat(self.compat, malformed_verdict=malformed_verdict != "no")

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """Route, search, route again … until somebody answers or the turns are used up."""
        if self.compat == "drmas":
            return (yield from reference.team(self, task))
        steps: list[dict[str, str]] = []
        verdicts: list[str] = []
        info: dict[str, Any] = {"verdicts": verdicts, "queries": [], "turns": 0}
        for turn in range(1, self.max_turns + 1):
            info["turns"] = turn
            last, remark = turn == self.max_turns, ""
            if last and self.force_answer:
                verdicts.append("forced")
            else:
                shown = self.shown("verifier_0", task, turn, steps)
                verdict = yield Ask("verifier_0", shown, parse=sufficiency)
                verdicts.append(verdict.value or self.malformed_verdict[verdict.status])
                remark = after_think(verdict.text).strip()
            if verdicts[-1] != "no":
                shown = self.shown("answer_0", task, turn, steps, remark)
                final = yield Ask("answer_0", shown, parse=answer)
                return (yield from self.end(task, final, info))
            if not last:
                shown = self.shown("search_0", task, turn, steps, remark)
                query = yield Ask("search_0", shown, parse=search_query)
                info["queries"].append(query.value)
                steps.append((yield from self.look_up(query.value, turn)))
        return (yield from self.end(task, None, info))


class SearchSingleEnv(SearchWorkflow):
    """The single-agent baseline of search-v0: each turn one agent thinks, then searches or answers.

    A turn whose action cannot be read is used up.

    Actions:
        searcher: `<search>query</search>` or `<answer>…</answer>`; invalid when there is neither,
            when it begins both, and when one is empty or never closed. On the last turn of
            `force_answer` only an answer is valid.
    """

    roles = ("searcher",)
    default_prompts = PROMPTS / "single.toml"

    def play(self, task: Task, rng: np.random.Generator) -> Play:
        """Search until an answer is given or the turns are used up."""
        if self.compat == "drmas":
            return (yield from reference.single(self, task))
        steps: list[dict[str, str]] = []
        info: dict[str, Any] = {"queries": [], "turns": 0}
        for turn in range(1, self.max_turns + 1):
            info["turns"] = turn
            forced = self.force_answer and turn == self.max_turns
            shown = self.shown("searcher_0", task, turn, steps)
            reply = yield Ask(
                "searcher_0", shown, parse=only_answer if forced else search_or_answer
            )
            kind, text = reply.value or ("unread", None)
            if kind == "answer":
                return (yield from self.end(task, reply._replace(value=text), info))
            if turn < self.max_turns:
                info["queries"].append(text)
                steps.append((yield from self.look_up(text, turn)))
        return (yield from self.end(task, reply if kind == "unread" else None, info))
