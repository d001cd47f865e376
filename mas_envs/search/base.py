"""The base of search-v0 and search-single-v0."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Literal

from mas_envs.arguments import check_choice, check_compat, check_count
from mas_envs.episodes.schema import Grade, GradeStatus, Message
from mas_envs.errors import UnknownName
from mas_envs.prompts import PROMPT_SETS
from mas_envs.protocol import Call, Outcome, Play, Reply
from mas_envs.search.retrieval import search_tool
from mas_envs.tasks import Task, TaskSet
from mas_envs.tools import as_grade, qa_grader
from mas_envs.workflow import WorkflowEnv

PROMPTS = PROMPT_SETS / "search"
NORMALISERS = ("strict", "squad", "triviaqa", "nfd")  # of grading.normalisers, loaded when used


class SearchWorkflow(WorkflowEnv):
    """What the two search environments share: passages, exact-match grading, compatibility.

    Rewards:
        team: 1 if the answer is, once both are normalised, one of the gold answers (exact match,
            `mas_envs.grading.grade_qa`); 0 for any other and for none.

    Info:
        queries: the queries in order; null for one that could not be read.
        turns: how many turns there were.

    Arguments:
        max_turns: turns of the team at most.
        top_k: passages that answer a query.
        retriever: "tinyworld" (embedded), an index (a folder that `mas-retrieve index` made), the
            URL of a retrieval server, or several of one index with commas between, a corpus (.jsonl
            file or folder, indexed in each process), or "module:attribute" (a `Retriever`).
        force_answer: on the last turn only an answer is possible.
        grading: the normaliser of answers. "strict" merges the spellings of one answer, but not
            3.14 and 314; "squad" scores as the paper does; "triviaqa" and "nfd" as others do.
        compat: "drmas" plays, reads and scores as the reference implementation does
            (`mas_envs.search.reference`); `grading` is "squad" then.

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
        grading: Literal["strict", "squad", "triviaqa", "nfd"] = "strict",
        compat: Literal["drmas"] | None = None,
        **common: Any,
    ) -> None:
        self.max_turns = check_count("max_turns", max_turns)
        self.max_decisions = 2 * self.max_turns
        self.top_k = check_count("top_k", top_k)
        self.force_answer = check_choice("force_answer", force_answer, (False, True))
        if not isinstance(grading, str) or grading not in NORMALISERS:
            raise UnknownName("grading", str(grading), NORMALISERS)
        self.compat = check_compat(compat, force_answer=force_answer, grading=grading != "strict")
        self.normaliser = grading if compat is None else "squad"
        super().__init__(**common)
        self.retriever = retriever
        self.tools = {"search": search_tool(retriever), "grade": qa_grader}

    @property
    def tasks(self) -> TaskSet:
        """The environment's tasks, loaded on first use.

        Warns when nobody chose them and the passages are not those that they ask about.
        """
        if self._tasks is None and self.retriever != "tinyworld":
            message = (
                f"the questions are tinyworld's, the passages those of {self.retriever!r:.80}; "
                'for questions of yours give tasks={"source": "questions.jsonl"}'
            )
            warnings.warn(message, stacklevel=2)
        return super().tasks

    def shown(
        self,
        agent: str,
        task: Task,
        turn: int,
        steps: Iterable[Mapping[str, str]],
        remark: str = "",
    ) -> tuple[Message, ...]:
        """What that agent is shown: question, turn, the steps so far, the verifier's remark."""
        fields = {"question": task.question, "remark": remark, "max_turns": str(self.max_turns)}
        fields |= {"turn": str(turn), "taken": str(turn - 1)}
        return self.prompts.messages(agent, fields, steps)

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
        args = {"response": response, "gold": task.answer}
        if self.normaliser != "strict":
            args["normaliser"] = self.normaliser
        grade = as_grade((yield Call("grade", args)))
        return Outcome(reward=float(grade.correct is True), grade=grade, info=info)
