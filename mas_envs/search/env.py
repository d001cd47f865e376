"""search-v0: a verifier routes to a search agent or an answer agent, over several turns.

search-single-v0 is one agent that thinks, searches and answers by itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Literal

import numpy as np

from mas_envs.arguments import check_choice, check_compat, check_count, readings
from mas_envs.episodes.schema import Grade, GradeStatus, Message
from mas_envs.parsing import after_think, answer, one_of, search_query, tag
from mas_envs.prompts import PROMPT_SETS
from mas_envs.protocol import Ask, Call, Outcome, Play, Reply
from mas_envs.search import reference
from mas_envs.search.retrieval import search_tool
from mas_envs.tasks import Task
from mas_envs.tools import as_grade, grade_qa
from mas_envs.workflow import WorkflowEnv

Steps = Iterable[Mapping[str, str]]
"""The turns so far: turn, query and passages, by the names that prompts use."""

sufficiency = tag("verify", ("yes", "no"))
search_or_answer = one_of(search=search_query, answer=answer)
only_answer = one_of(answer=answer)


class SearchTask(WorkflowEnv):
    """What the two search environments share: passages, exact-match grading, compatibility.

    Rewards:
        team: 1 if the answer is, once both are normalised, one of the gold answers
            (`mas_envs.grading.grade_qa`); 0 for any other and for none.

    Info:
        queries: the queries in order; null for one that could not be read.
        turns: how many turns there were.

    Arguments:
        max_turns: turns of the team at most.
        top_k: passages that answer a query.
        retriever: "tinyworld" (embedded), the URL of a retrieval server, a corpus (.jsonl file or
            folder), or "module:attribute" (a `Retriever`).
        force_answer: on the last turn only an answer is possible.
        compat: "drmas" plays, reads and scores as the reference implementation does
            (`mas_envs.search.reference`).

    Versions:
        v0: the first.
    """

    default_tasks = {"source": "tinyworld", "split": "train"}  # noqa: RUF012

    def __init__(
        self,
        *,
        max_turns: int = 4,
        top_k: int = 3,
        retriever: str = "tinyworld",
        force_answer: bool = False,
        compat: Literal["drmas"] | None = None,
        **common: Any,
    ) -> None:
        self.max_turns = check_count("max_turns", max_turns)
        self.max_decisions = 2 * max_turns
        self.top_k = check_count("top_k", top_k)
        self.force_answer = check_choice("force_answer", force_answer, (False, True))
        self.compat = check_compat(compat, force_answer=force_answer)
        super().__init__(**common)
        self.tools = {"search": search_tool(retriever), "grade": grade_qa}

    def shown(
        self,
        agent: str,
        task: Task,
        turn: int,
        steps: Iterable[Mapping[str, str]],
        remark: str = "",
    ) -> tuple[Message, ...]:
        """What that agent is shown: question, turn, the steps so far, the verifier's remark."""
        fields = {"question": task.question, "turn": str(turn), "max_turns": str(self.max_turns)}
        return self.prompts.messages(agent, {**fields, "remark": remark}, steps)

    def look_up(self, query: str | None, turn: int) -> Generator[Call, Any, dict[str, str]]:
        """One step of the history: the query and its passages; None is one that nobody can read."""
        step = {"turn": str(turn), "query": query or ""}
        if query is None:
            return step | {"passages": "(the query could not be read)"}
        found = yield Call("search", {"query": query, "k": self.top_k})
        texts = [f"{one['title']}: {one['text']}" if one["title"] else one["text"] for one in found]
        lines = [f"[{n}] {text}" for n, text in enumerate(texts, 1)]
        return step | {"passages": "\n".join(lines) or "(nothing was found)"}

    def end(self, task: Task, final: Reply | None, info: dict[str, Any]) -> Play:
        """Grade the answer; one that cannot be read, or none at all, is wrong."""
        if final is None or final.status != "ok":
            status: GradeStatus = "no_answer"
            if final is not None and final.status == "truncated":
                status = "truncated"
            reason = "nobody answered" if final is None else f"the answer is {final.status}"
            grade = Grade(correct=False, status=status, reason=reason)
            return Outcome(reward=0.0, grade=grade, info=info)
        response = f"<answer>{final.value}</answer>"
        grade = as_grade((yield Call("grade", {"response": response, "gold": task.answer})))
        return Outcome(reward=float(grade.correct is True), grade=grade, info=info)


class SearchEnv(SearchTask):
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
    default_prompts = PROMPT_SETS / "search" / "default.toml"

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


class SearchSingleEnv(SearchTask):
    """The single-agent baseline of search-v0: each turn one agent thinks, then searches or answers.

    A turn whose action cannot be read is used up.

    Actions:
        searcher: `<search>query</search>` or `<answer>…</answer>`; invalid when there is neither,
            when it begins both, and when one is empty or never closed. On the last turn of
            `force_answer` only an answer is valid.
    """

    roles = ("searcher",)
    default_prompts = PROMPT_SETS / "search" / "single.toml"

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
