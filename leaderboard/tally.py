"""What the lines of a submission add up to, and the checks that need all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmarks.metrics import pass_curve, score
from leaderboard.examine import Examined, Sample
from leaderboard.findings import Findings
from leaderboard.manifest import Manifest, Score
from leaderboard.questions import Questions
from leaderboard.timing import Timing
from mas_envs.errors import UserError

MOST_NAMES = 10_000  # of agents, models and tools together


@dataclass(slots=True)
class Tally:
    """Filled line by line, in order; grows with the number of episodes, not with their texts."""

    manifest: Manifest
    questions: Questions
    findings: Findings
    right: dict[str, dict[int, bool]] = field(default_factory=lambda: defaultdict(dict))
    """Task → sample → whether we grade it right."""
    seen: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    texts: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    models: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    tools: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    rounds: list[tuple[bool, ...]] = field(default_factory=list)
    timing: Timing = field(default_factory=Timing)
    undecided: str = ""
    count: int = 0
    repeats: int = 0

    def add(self, one: Examined) -> None:
        """One more line."""
        sample = one.sample
        if sample is not None and sample.sample in self.seen[sample.task]:
            self.findings.add("samples", f"{_where(one.number, sample)}: twice")
            return
        brought = sample.brought if sample is not None else None
        if sample is not None and brought and (problem := self.questions.admit(brought)):
            self.findings.add("samples", f"{_where(one.number, sample)}: {problem}")
            return
        for check, problem in one.problems:
            self.findings.add(check, problem)
        if sample is not None:
            self._count(one.number, sample)

    def _count(self, number: int, sample: Sample) -> None:
        self.count += 1
        self.seen[sample.task].add(sample.sample)
        self.repeats += sample.texts in self.texts[sample.task]
        self.texts[sample.task].add(sample.texts)
        if len(self.tools) + len(self.read) + sum(map(len, self.models.values())) > MOST_NAMES:
            self.findings.add("schema", f"more than {MOST_NAMES} agents, models and tools in all")
            return
        for role, spoke in sample.models.items():
            self.models[role] |= spoke
        self.tools.update(sample.tools)
        for agent, (read, written) in sample.tokens.items():
            self.read[agent] += read
            self.written[agent] += written
        self.timing.add(sample.clock)
        if sample.grade is None:
            return
        if sample.grade.correct is None and not self.undecided:
            why = sample.grade.reason or sample.grade.status
            self.undecided = f"the grader could not decide {_where(number, sample)} ({why:.200})"
        self.right[sample.task][sample.sample] = sample.grade.correct is True
        if sample.rounds:
            self.rounds.append(sample.rounds)

    def scores(self) -> dict[str, Score]:
        """avg@k and pass@k, of what we grade right. Raises `UserError` where there are none."""
        if self.undecided:
            raise UserError(self.undecided)
        k, lists = self.manifest.k, self._lists()
        ours = {f"avg@{k}": score(lists, k, "avg"), f"pass@{k}": score(lists, k, "pass")}
        return {name: msgspec.convert(one, Score, from_attributes=True)
                for name, one in ours.items()}  # fmt: skip

    def curve(self) -> list[float]:
        """pass@1 … pass@k in percent. Raises as `scores` does."""
        return [one.value for one in pass_curve(self._lists())]

    def _lists(self) -> dict[str, list[bool]]:
        return {task: list(samples.values()) for task, samples in self.right.items()}

    def right_by_question(self) -> dict[str, int]:
        """`Questions.key` → how many of its samples are right."""
        counts = ((self.questions.key(task), samples) for task, samples in self.right.items())
        return {key: sum(samples.values()) for key, samples in sorted(counts, key=lambda c: c[0])}

    def by_turn(self) -> list[float]:
        """Percent right, had each team stopped after its first, second, … draft."""
        longest = max(map(len, self.rounds), default=0)
        return [
            100 * sum(rounds[min(n, len(rounds)) - 1] for rounds in self.rounds) / len(self.rounds)
            for n in range(1, longest + 1)
        ]

    def tokens(self) -> dict[str, dict[str, float]]:
        """Agent → mean tokens of an episode: "read" (prompts) and "written"; none uncounted."""
        return {
            agent: {"read": self.read[agent] / self.count, "written": total / self.count}
            for agent, total in sorted(self.written.items())
            if total
        }

    def check(self, computed: Iterable[str], passages: str) -> dict[str, Score]:
        """All checks that need every line; returns our scores.

        `computed` are the tools whose results we made ourselves; `passages` says why the passages
        were believed, if they were.
        """
        manifest, findings = self.manifest, self.findings
        self._check_samples()
        self.questions.check(manifest, findings)
        ours = self._check_scores()
        declared = {role: set(names) for role, names in manifest.models.items()}
        if self.models != declared:
            spoke = {role: sorted(names) for role, names in sorted(self.models.items())}
            findings.add("settings", f"declared models {manifest.models}, found {spoke}")
        believed = {name: n for name, n in self.tools.items() if name not in {*computed}}
        if believed:
            counts = ", ".join(f"{n} of {name!r:.80}" for name, n in sorted(believed.items()))
            why = f"; {passages}" if passages and "search" in believed else ""
            findings.unchecked["tools"] = f"stored results were believed: {counts}{why}"
        if self.repeats and manifest.sampling.temperature > 0:
            findings.warnings["repeats"] = (
                f"{self.repeats} of {self.count} samples repeat another one of their "
                "question word for word"
            )
        if problems := self.timing.problems(manifest.sessions):
            findings.warnings["timing"] = "; ".join(problems)
        return ours

    def _check_samples(self) -> None:
        wanted, manifest, findings = self.questions.tasks, self.manifest, self.findings
        if missing := manifest.suite.rows - len(wanted):
            problem = f"{missing} of {manifest.suite.rows} questions have no sample"
            findings.add("samples", problem)
        for task in sorted(wanted):
            if (found := len(self.seen[task])) != manifest.k:
                findings.add("samples", f"task {task} has {found} of {manifest.k} samples")

    def _check_scores(self) -> dict[str, Score]:
        findings, declared = self.findings, self.manifest.scores
        try:
            ours = self.scores()
        except UserError as error:
            findings.add("scores", f"cannot be recomputed: {error}")
            return {}
        if set(ours) != set(declared):
            findings.add("scores", f"declared {sorted(declared)}, expected {sorted(ours)}")
        for name in sorted(set(ours) & set(declared)):
            for key, value in msgspec.structs.asdict(ours[name]).items():
                theirs: Any = getattr(declared[name], key)
                if not abs(theirs - value) < 1e-6:
                    findings.add("scores", f"{name} {key} declared {theirs:.10g}, is {value:.10g}")
        said = ", ".join(f"{name} {one.value:.1f} %" for name, one in ours.items())
        findings.remarks["scores"] = said
        return ours


def _where(number: int, sample: Sample) -> str:
    return f"line {number} (task {sample.task:.16}, sample {sample.sample})"
