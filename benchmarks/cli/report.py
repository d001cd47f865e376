"""`mas-bench report`: a run's table, recomputed from its stored episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.cli.scores import print_scores
from benchmarks.run_folder import read_run


def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")]) -> None:
    """Print a run's table again, recomputed from its stored episodes."""
    stored = read_run(folder)
    print_scores(stored, stored.summary())
