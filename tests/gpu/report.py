"""What was found, line by line; a line may have a problem, and then the script fails."""

import contextlib
import sys
import traceback
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

GIB = 1 << 30
TOLERANCE = 0.15
"""Share of the predicted memory by which the measured one may differ."""


class Line(NamedTuple):
    what: str
    found: str
    problem: str = ""


class Report:
    def __init__(self, title):
        self.title, self.lines = title, []

    def add(self, what, found, problem=""):
        self.lines.append(Line(what, found, problem))

    def limit(self, what, value, most, unit=""):
        """A number that must not be above `most`."""
        fine = value <= most
        self.add(what, f"{value:.3g}{unit}", "" if fine else f"more than {most:.3g}{unit}")

    @contextlib.contextmanager
    def trying(self, what):
        """An error within is a line with a problem, and the script goes on."""
        try:
            yield
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            said = str(error).strip().splitlines() or [""]
            self.add(what, "failed", f"{type(error).__name__}: {said[0]}")

    def memory(self, what, predicted, measured):
        """Bytes that `mas-train plan` computes, and those measured (None: not here)."""
        if measured is None:
            self.add(what, f"predicted {predicted / GIB:.3f} GiB, not measured")
            return
        ratio = measured / predicted
        found = f"predicted {predicted / GIB:.2f} GiB, measured {measured / GIB:.2f}, {ratio:.2f} x"
        close = abs(ratio - 1) <= TOLERANCE
        self.add(what, found, "" if close else f"more than {TOLERANCE:.0%} apart")

    @property
    def problems(self):
        return [f"{line.what}: {line.problem}" for line in self.lines if line.problem]

    def show(self):
        table = Table(title=self.title, title_justify="left")
        for column in ("", "found", "problem"):
            table.add_column(column, overflow="fold")
        for line in self.lines:
            table.add_row(*line)
        Console().print(table)
