"""What a check found: one line per case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mas_envs.errors import MasError
from mas_train.conformance.cases import Case


class NotConformant(MasError, AssertionError):
    """A function fails golden cases; the message is the report of these."""


@dataclass(frozen=True, slots=True)
class Result:
    """`verdict` passed | failed | skipped, the largest error (None: nothing was compared), a note:
    what is wrong, or what was not checked.
    """

    case: Case
    verdict: str
    error: float | None = None
    note: str = ""


class Report:
    """The results of a check. `str` is a table: case, verdict, largest error, what is wrong."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.results = tuple(results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def failures(self) -> Report:
        """The failed cases alone."""
        return Report([result for result in self if result.verdict == "failed"])

    @property
    def passed(self) -> bool:
        """No case failed, and at least one was run."""
        return not self.failures().results and any(one.verdict == "passed" for one in self)

    def raise_for_failures(self) -> None:
        """Raises `NotConformant` for a failed case, or if none could be run."""
        if not self.passed:
            failed = self.failures()
            raise NotConformant(f"not conformant\n{failed if failed.results else self}")

    def __str__(self) -> str:
        rows = [("case", "", "", "error", "")]
        for one in self:
            error = "" if one.error is None else f"{one.error:.1e}"
            verdict = one.verdict.upper() if one.verdict == "failed" else one.verdict
            rows.append((one.case.name, one.case.title, verdict, error, one.note))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            "  ".join(
                [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]
            )
            for row in rows
        ]
        counts = {name: sum(one.verdict == name for one in self) for name in
                  ("passed", "failed", "skipped")}  # fmt: skip
        summary = ", ".join(f"{count} {name}" for name, count in counts.items())
        return "\n".join([*(line.rstrip() for line in lines), summary])


def compare(found: Any, expected: Any, case: Case, tolerance: float) -> tuple[float, str]:
    """The largest error of an array, and what is wrong with it ("" if nothing is).

    An element may be wrong by `tolerance` times the larger of 1 and its right value.
    """
    try:
        array = np.asarray(found, np.float64)
    except (TypeError, ValueError, RuntimeError):  # torch: a tensor that requires grad
        return np.inf, f"{type(found).__name__} is not an array of numbers"
    right = np.asarray(expected, np.float64)
    if array.shape != right.shape:
        return np.inf, f"shape {array.shape}, should be {right.shape}"
    if array.size == 0:
        return 0.0, ""
    array, right = array.reshape(-1), right.reshape(-1)
    errors = np.where(np.isfinite(array), np.abs(array - right), np.inf)
    bad = errors > tolerance * np.maximum(1.0, np.abs(right))
    return float(errors.max()), _diagnosis(array, right, bad, errors, case) if bad.any() else ""


def _diagnosis(array: Any, right: Any, bad: Any, errors: Any, case: Case) -> str:
    known = case.inputs.get("known")
    if known is not None and known.shape == bad.shape and (bad & ~known).any():
        row = int(np.flatnonzero(bad & ~known)[0])
        return f"row {row} has no known reward and must get 0, not {array[row]:.6g}"
    worst = int(np.argmax(errors))
    sentence = f"[{worst}] is {array[worst]:.6g}, should be {right[worst]:.6g}"
    count = int(bad.sum())
    if count == 1:
        return sentence
    sentence += f"; {count} of {bad.size} are wrong"
    if np.isfinite(array).all():
        factor = float(array @ right) / max(float(right @ right), 1e-300)
        offset = float((array - right).mean())
        if factor and np.allclose(array, factor * right, rtol=1e-6, atol=1e-9):
            sentence += f": all are {factor:.6g} times the right value"
        elif np.allclose(array, right + offset, rtol=1e-6, atol=1e-9):
            sentence += f": all are {offset:.6g} off"
    return sentence
