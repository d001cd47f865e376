"""What is looked at in a submission, and what was found."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Literal, NamedTuple

CHECKS = {
    "members": "every member has the size and SHA-256 that the manifest declares",
    "schema": "every line is an episode",
    "suite": "the questions are the suite's",
    "samples": "every question has exactly k finished samples, none twice, none foreign, no forks",
    "questions": "questions and golds are the suite's, word for word",
    "settings": "environment, prompts, sampling, seeds and models are as declared",
    "replay": "the environment, played again, asks and reads the same",
    "tools": "what tools gave is what they give here, as far as the conversations use any",
    "grades": "our grader gives the same grades",
    "rewards": "rewards follow from the grades",
    "scores": "the declared scores and intervals follow from the episodes",
    "repeats": "samples of a question differ",
    "timing": "the times that are told are possible",
    "contamination": "the declared training data share nothing with the questions",
}
ESSENTIAL = ("suite", "questions", "replay")  # unchecked, the numbers are the submitter's word
SHOWN = 3  # problems quoted per check
LONGEST = 500  # characters of one
Result = Literal["pass", "fail", "warning", "unchecked"]
Status = Literal["recomputed", "self-reported", "rejected"]


class Check(NamedTuple):
    """One line of the result: what was found, and what it means."""

    name: str
    result: Result
    detail: str


class Findings:
    """Problems by check, a few of them quoted, and remarks."""

    def __init__(self) -> None:
        self.problems: dict[str, list[str]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.warnings: dict[str, str] = {}
        self.unchecked: dict[str, str] = {}
        self.remarks: dict[str, str] = {}

    def add(self, check: str, problem: str) -> None:
        """One more problem: the check fails."""
        self.counts[check] += 1
        if len(self.problems[check]) < SHOWN:
            self.problems[check].append(printable(problem))

    def checks(self) -> list[Check]:
        """One line per check, in the order of `CHECKS`."""
        return [self._check(name, about) for name, about in CHECKS.items()]

    def _check(self, name: str, about: str) -> Check:
        if self.counts[name]:
            more = self.counts[name] - len(self.problems[name])
            text = "; ".join(self.problems[name]) + (f"; and {more} more" if more else "")
            return Check(name, "fail", text)
        if name in self.warnings:
            return Check(name, "warning", printable(self.warnings[name]))
        if name in self.unchecked:
            return Check(name, "unchecked", printable(self.unchecked[name]))
        return Check(name, "pass", self.remarks.get(name, about))


def printable(text: str) -> str:
    """The start of a text for any terminal or page.

    What a submission says may hold escape codes and lone surrogates.
    """
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}"
                   for one in text[:LONGEST])  # fmt: skip


def status_of(checks: list[Check]) -> tuple[Status, list[str]]:
    """What the checks come to, and why it is not "recomputed"."""
    if failed := [f"{one.name}: {one.detail}" for one in checks if one.result == "fail"]:
        return "rejected", failed
    believed = [
        f"{one.name}: {one.detail}"
        for one in checks
        if one.result == "unchecked" and one.name in ESSENTIAL
    ]
    return ("self-reported", believed) if believed else ("recomputed", [])
