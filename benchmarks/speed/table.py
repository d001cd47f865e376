"""How the scripts print what they measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median and range: `1.02 (1.01–1.04)`."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """One table on stdout; the first column is text, the others are numbers."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
