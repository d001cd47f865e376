"""`mas-bench export`: a run in another tool's format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks import lm_eval
from benchmarks.cli.notes import note
from benchmarks.run_folder import read_run
from mas_envs.errors import UnknownName

FORMATS = {"lm-eval": lm_eval.export}


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")],
    out: Annotated[Path, typer.Option(help="Folder to write into.")],
    format: Annotated[
        str, typer.Option(help="lm-eval: results and samples as lm-evaluation-harness has them.")
    ] = "lm-eval",
) -> None:
    """Write a whole run in the files of another tool."""
    if format not in FORMATS:
        raise UnknownName("format", format, FORMATS, where="--format")
    for path in FORMATS[format](read_run(folder), out):
        note.print(f"wrote {path}")
