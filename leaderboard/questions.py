"""The questions that a submission had to answer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from benchmarks.suites import SuiteWarning, fingerprint, load_suite, suites
from leaderboard.findings import Findings
from leaderboard.manifest import Manifest
from mas_envs.episodes.schema import Episode
from mas_envs.tasks import Task, content_hash

Place = tuple[int, Task]
"""The number of a question in its suite (the episodes' group), and the question."""


class Questions:
    """The suite's tasks, or, where its file is not at hand, those that the run brings along."""

    def __init__(self, manifest: Manifest, data: Path | None) -> None:
        name = manifest.suite.name
        self.rows = manifest.suite.rows
        self.spec = suites().get(name)
        self.known = data is not None or (self.spec is not None and self.spec.tasks is not None)
        tasks: Iterable[Task] = ()
        if self.known:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SuiteWarning)  # the check of the hash says it
                tasks = load_suite(name, data)
        self.tasks = {task.id: (group, task) for group, task in enumerate(tasks)}
        self._groups: set[int] = set()

    def find(self, stored: Episode) -> Place | None:
        """The question of an episode; None for a task that is not the suite's.

        Where the suite is not at hand, what the episode says of it, if that has the task's hash.
        """
        if self.known:
            return self.tasks.get(stored.task)
        gold, question = stored.gold, stored.question
        if not isinstance(gold, str) and not _texts(gold):
            return None
        if stored.task not in {content_hash(question, gold, n) for n in range(4)}:
            return None
        task = Task(id=stored.task, question=question, answer=gold, meta=stored.meta)
        return stored.group, task

    def admit(self, place: Place) -> str:
        """Remember a question that an episode brought along; "" or why it cannot be one more."""
        group, task = place
        if (first := self.tasks.get(task.id)) is not None:
            return "" if first == place else "another place or meta than in its other samples"
        if len(self.tasks) == self.rows or group in self._groups:
            return "one question more than there are, or two in one place"
        self.tasks[task.id] = place
        self._groups.add(group)
        return ""

    def check(self, manifest: Manifest, findings: Findings) -> None:
        """Compare the content with what the manifest declares and with the canonical one."""
        name, declared = manifest.suite.name, manifest.suite.sha256
        found = fingerprint(task for _, task in self.tasks.values())
        canonical = self.spec.sha256 if self.spec is not None else None
        if self.rows != (rows := self.spec.rows if self.spec is not None else self.rows):
            findings.add("suite", f"{self.rows} questions declared; {name} has {rows}")
        if found != declared:
            whose = f"{name} is" if self.known else "these questions are"
            findings.add("suite", f"declared content {declared:.12}…; {whose} {found[:12]}…")
        if canonical is not None and declared != canonical:
            findings.add("suite", f"content {declared:.12}… is not the canonical "
                         f"{canonical[:12]}… of {name}")  # fmt: skip
        if self.known or canonical is not None:
            how = "word for word" if self.known else "by their canonical hash"
            findings.remarks["suite"] = f"{self.rows} questions of {name}, {how}"
        else:
            text = f"only against the run itself: {name} is not at hand, pass --data FILE"
            findings.unchecked |= {"suite": text, "questions": text}


def _texts(gold: object) -> bool:
    return isinstance(gold, list) and all(isinstance(one, str) for one in gold)
