"""The questions that a submission had to answer."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from benchmarks.suites import SuiteWarning, fingerprint, load_suite, suites
from benchmarks.suites.rows import SUFFIXES
from benchmarks.suites.spec import YAML, Suite, suite
from leaderboard.findings import Findings
from leaderboard.manifest import Manifest
from mas_envs.episodes.schema import Episode
from mas_envs.errors import UserError
from mas_envs.tasks import Task, content_hash

MOST_TEXT = 2**26  # characters of all questions that a submission brings along
REPEATED = 4  # times that a suite of somebody's own may ask the same
Place = tuple[int, Task]
"""The number of a question in its suite (the episodes' group), and the question."""


class Questions:
    """The suite's tasks, or, where its file is not at hand, those that the run brings along."""

    def __init__(self, manifest: Manifest, data: Path | None) -> None:
        self.rows = manifest.suite.rows
        self.spec = spec_of(manifest.suite.name, data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SuiteWarning)  # the check of the hash says it
            tasks = _at_hand(self.spec, manifest.suite.name, data)
        self.known = tasks is not None
        self.tasks = {task.id: (group, task) for group, task in enumerate(tasks or ())}
        self._keys: dict[str, str] = {}
        self._taken: set[str] = set()
        self._later: list[tuple[Task, int]] = []
        seen: Counter[str] = Counter()
        for task in tasks or ():
            first = _key(task, 0)
            self._keys[task.id] = _key(task, seen[first])
            seen[first] += 1
        self._groups: set[int] = set()
        self._brought = 0

    def find(self, stored: Episode) -> Place | None:
        """The question of an episode; None for a task that is not the suite's.

        Where the suite is not at hand, what the episode says of it, if that has the task's hash, as
        `load_suite` would have given it: no suite of a file asks the same twice, and a gold of
        mathematics is a text.
        """
        if self.known:
            return self.tasks.get(stored.task)
        gold, question = stored.gold, stored.question
        if not isinstance(gold, str) and not _texts(gold):
            return None
        if self.spec is not None and self.spec.grader == "math" and not isinstance(gold, str):
            return None
        task_ids = (content_hash(question, gold, n) for n in range(self._most_occurrences))
        if stored.task not in task_ids:
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
        task_ids = [content_hash(task.question, task.answer, n) for n in range(REPEATED)]
        occurrence = task_ids.index(task.id)
        key = _key(task, occurrence)
        if key in self._taken:
            return "the question and gold of another task"
        self._brought += len(task.question) + len(msgspec.json.encode([task.answer, task.meta]))
        if self._brought > MOST_TEXT:
            return f"questions of more than {MOST_TEXT} characters in all"
        self.tasks[task.id] = place
        self._groups.add(group)
        self._keys[task.id] = key
        self._taken.add(key)
        if occurrence:
            self._later.append((task, occurrence))
        return ""

    def key(self, task: str) -> str:
        """What a task is called in the numbers: the same for all who answered this question.

        Ids tell a single gold from a list of it, which copies of one suite spell differently.
        """
        return self._keys[task]

    @property
    def _most_occurrences(self) -> int:
        return REPEATED if self.spec is None else 1

    def check(self, manifest: Manifest, findings: Findings) -> None:
        """Compare the content with what the manifest declares and with the canonical one."""
        name, declared = manifest.suite.name, manifest.suite.sha256
        for task, occurrence in self._later:
            if content_hash(task.question, task.answer, occurrence - 1) not in self.tasks:
                problem = f"task {task.id}: repetition {occurrence} of a question that is not there"
                findings.add("suite", problem)
        found = fingerprint(task for _, task in self.tasks.values())
        canonical = self.spec.sha256 if self.spec is not None else None
        rows = len(self.tasks) if self.known else self.spec and self.spec.rows
        if rows and self.rows != rows:
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


def spec_of(name: str, data: Path | None) -> Suite | None:
    """What is known of a suite: of one that comes with us, or of `data`, a FILE.yaml of your own.

    A name that a submission gives is never read as a file's. Raises `UserError` for a FILE.yaml
    without the suite.
    """
    if data is not None and data.suffix in YAML:
        return suite(f"{data}#{name}")
    return suites().get(name)


def suite_file(folder: Path | None, name: str) -> Path | None:
    """Our copy of a suite's questions, if there is one in `folder`."""
    spec = suites().get(name)
    if folder is None or spec is None or spec.tasks is not None:
        return None
    found = [path for end in SUFFIXES if (path := folder / f"{spec.name}{end}").is_file()]
    return found[0] if found else None


def _at_hand(spec: Suite | None, name: str, data: Path | None) -> Iterable[Task] | None:
    """A suite's tasks; None for one that is not at hand. Raises `UserError` for a useless file."""
    if data is not None and data.suffix in YAML:
        return load_suite(f"{data}#{name}")
    if spec is not None and spec.tasks is not None:
        return load_suite(name, data)
    if data is None or data.is_dir():
        file = suite_file(data, name)
        return None if file is None else load_suite(name, file)
    if spec is None:
        fix = "give the FILE.yaml that describes it, or no --data"
        raise UserError(f"--data {data}: {name!r:.80} is no suite that comes with mas-gym; {fix}")
    return load_suite(name, data)


def _key(task: Task, occurrence: int) -> str:
    gold = task.answer
    single = gold[0] if isinstance(gold, list) and len(gold) == 1 else gold
    return content_hash(task.question, single, occurrence)


def _texts(gold: object) -> bool:
    return isinstance(gold, list) and all(isinstance(one, str) for one in gold)
