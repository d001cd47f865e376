"""Two runs of one suite, compared question by question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from benchmarks.accounting import Usage
from benchmarks.metrics import Score, score
from benchmarks.paired import Paired, paired
from benchmarks.run_folder import Settings, Stored, read_run
from mas_envs.errors import UserError

Metric = Literal["avg", "pass"]
# What may differ without a word: the policies are what is compared, the rest decides no score.
WORDS = 100  # characters of a question that are kept
EXPECTED = {"suite", "questions", "policies", "seed"}


@dataclass(frozen=True, slots=True)
class Compared:
    """One metric of both runs, in percent, and their difference."""

    a: Score
    b: Score
    difference: Paired


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A: `avg@k` and `pass@k`, and per question how many of the k samples are right."""

    a: str
    b: str
    suite: dict[str, Any]
    k: int
    warnings: list[str]
    """Other differences between the runs than their policies, which may explain a difference."""
    metrics: dict[str, Compared]
    correct: dict[str, tuple[int, int]]
    """Question → correct samples of A and of B."""
    texts: dict[str, str]
    """Question → its first words, for whoever has the suite; not in the JSON."""

    def to_json(self) -> dict[str, Any]:
        """All of it; every gain says its unit."""
        metrics = {name: _metric_json(compared) for name, compared in self.metrics.items()}
        questions = {question: {"a": a, "b": b} for question, (a, b) in self.correct.items()}
        return {
            "a": self.a,
            "b": self.b,
            "suite": self.suite,
            "k": self.k,
            "warnings": self.warnings,
            "metrics": metrics,
            "correct_samples": questions,
        }


def _metric_json(compared: Compared) -> dict[str, Any]:
    found = compared.difference
    return {
        "a": asdict(compared.a),
        "b": asdict(compared.b),
        "difference_points": found.points,
        "difference_points_low": found.low,
        "difference_points_high": found.high,
        "relative_gain_percent": found.relative,
        "p_value": found.p_value,
        "p_value_exact": found.exact,
        "wins": found.wins,
        "ties": found.ties,
        "losses": found.losses,
        "points_by_question": found.differences,
    }


def compare(a: Path, b: Path) -> Comparison:
    """Compare the run in folder `b` with that in `a`.

    Raises `UserError` naming the first thing that makes them incomparable: one folder twice,
    another content of the suite, another k, another set of questions, or a run without a headline
    number (samples missing, failed or undecided). `BadFile` for a folder that is no run.
    """
    first, second = read_run(a), read_run(b)
    if a.samefile(b):
        raise UserError(f"{a} and {b} are the same run; give two runs")
    _check_comparable(first, second)
    texts: dict[str, str] = {}
    before, graders = _read(first, texts)
    after, other_graders = _read(second, texts)
    _check_same_questions(a, b, before, after)
    k, warnings = first.settings.k, _warnings(first.settings, second.settings)
    if graders != other_graders:
        warnings.append(f"grader: A {_names(graders)}, B {_names(other_graders)}")
    questions = sorted(before)
    metrics = {f"{metric}@{k}": _compared(before, after, k, metric) for metric in get_args(Metric)}
    correct = {question: (sum(before[question]), sum(after[question])) for question in questions}
    suite = first.settings.suite
    return Comparison(str(a), str(b), suite, k, warnings, metrics, correct, texts)


Outcomes = Mapping[str, list[bool]]


def _compared(before: Outcomes, after: Outcomes, k: int, metric: Metric) -> Compared:
    def values(outcomes: Outcomes) -> dict[str, float]:
        """Of all k samples: their mean, or whether any is right."""
        if metric == "avg":
            return {question: sum(right) / k for question, right in outcomes.items()}
        return {question: float(any(right)) for question, right in outcomes.items()}

    difference = paired(values(before), values(after))
    return Compared(score(before, k, metric), score(after, k, metric), difference)


def _check_comparable(first: Stored, second: Stored) -> None:
    a, b = first.settings, second.settings
    if a.suite["sha256"] != b.suite["sha256"]:
        played = (f"{run.folder} played {run.settings.suite['name']} (content "
                  f"{run.settings.suite['sha256'][:12]}…)" for run in (first, second))  # fmt: skip
        raise UserError(f"{', '.join(played)}; compare runs of one suite with the same content")
    if a.k != b.k:
        raise UserError(f"{first.folder} has k = {a.k}, {second.folder} has k = {b.k}; "
                        "compare runs with as many samples per question")  # fmt: skip


def _check_same_questions(a: Path, b: Path, before: Outcomes, after: Outcomes) -> None:
    one_sided = sorted(before.keys() ^ after.keys())
    if one_sided:
        has, lacks = (a, b) if one_sided[0] in before else (b, a)
        raise UserError(
            f"question {one_sided[0]!r}: {has} has it, {lacks} does not ({len(before)} questions "
            f"in {a}, {len(after)} in {b}); play both with the same --limit"
        )


def _read(stored: Stored, texts: dict[str, str]) -> tuple[dict[str, list[bool]], set[str]]:
    """Question → correctness of its k samples, and the graders; fills in the questions' `texts`.

    Raises `UserError` unless the run is whole.
    """
    found: dict[str, dict[int, bool]] = {}
    graders = set()
    settings = stored.settings
    usage = Usage()
    for episode in stored.episodes(usage.add):
        grade = episode.grade
        if "fork" in episode.provenance or episode.status != "done":
            continue
        if grade is not None and grade.correct is not None:
            found.setdefault(episode.task, {})[episode.sample] = grade.correct
            graders.add(grade.grader)
            texts.setdefault(episode.task, " ".join(episode.question[: 2 * WORDS].split())[:WORDS])
    whole = all(len(samples) == settings.k for samples in found.values())
    problem = usage.problem(sum(map(len, found.values())))
    if problem or not whole or len(found) != settings.questions:
        problem = problem or stored.summary()["problem"]
        problem = problem or f"not {settings.k} samples of each question"
        raise UserError(f"{stored.folder}: no headline number to compare: {problem}")
    return {question: list(samples.values()) for question, samples in found.items()}, graders


def _warnings(a: Settings, b: Settings) -> list[str]:
    one, other = (
        {key: value for key, value in msgspec.to_builtins(settings).items() if key not in EXPECTED}
        for settings in (a, b)
    )
    return list(_differences(one, other))


def _differences(one: Mapping[str, Any], other: Mapping[str, Any], at: str = "") -> Iterator[str]:
    for key in sorted(one.keys() | other.keys()):
        a, b = one.get(key), other.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{at}{key}.")
        elif a != b:
            yield f"{at}{key}: A {a!r}, B {b!r}"


def _names(graders: set[str]) -> str:
    return " and ".join(sorted(name or "unnamed" for name in graders))
