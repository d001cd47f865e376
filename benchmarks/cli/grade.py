"""`mas-bench grade`: grade the responses in a file."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Annotated

import typer
from rich.console import Console

from benchmarks import grade as grading
from benchmarks.cli.notes import counted, note
from benchmarks.grade_input import survey
from benchmarks.grade_summary import Summary, tables
from mas_envs.console import progress
from mas_envs.errors import UserError
from mas_envs.grading.processes.graders import VERSIONS

EXAMPLES = """Examples:

  mas-bench grade answers.jsonl

  mas-bench grade answers.jsonl --response output --gold answer

  mas-bench grade answers.jsonl --policy '{"units": "required"}'

  mas-bench grade qa.jsonl --grader qa --metric f1 --normaliser squad

  mas-bench grade cases.jsonl --expected label --out /tmp/cases.jsonl"""


def grade(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="One row per response, with its gold.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where the grades go; FILE.graded.jsonl by default.")
    ] = None,
    grader: Annotated[str, typer.Option(help="math or qa.")] = "math",
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|JSON",
            help="Of math: default, strict, drmas, or options over the default, like "
            '\'{"units": "required"}\'.',
        ),
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Of qa: em, f1 or sub_em.")] = None,
    normaliser: Annotated[
        str | None, typer.Option(help="Of qa: strict, squad, triviaqa or nfd.")
    ] = None,
    response: Annotated[str, typer.Option(help="Key of the response, a text.")] = "response",
    gold: Annotated[
        str, typer.Option(help="Key of the gold: a text, a number or a list of acceptable ones.")
    ] = "gold",
    expected: Annotated[
        str | None, typer.Option(help="Key of a label (true or false) to compare with.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
) -> None:
    """Grade the responses in FILE.jsonl: one row per row, with the verdict and its reason.

    Interrupted? The same command continues. Exit code 0 when every row has a verdict, 1 when some
    gold could not be decided (they are listed), 2 for a mistake in the file or an option.
    """
    chosen = {"policy": policy, "metric": metric, "normaliser": normaliser}
    options = grading.options_of(grader, {k: v for k, v in chosen.items() if v is not None})
    for path in filter(None, (file, out)):
        if path.is_dir():
            raise UserError(f"{path}: is a folder; give a file")
    out = out or file.with_name(f"{file.name.removesuffix('.jsonl')}.graded.jsonl")
    if out.exists() and file.exists() and out.samefile(file):
        raise UserError(f"--out {out}: is the input; give another file")
    rows, digest = survey(file, response, gold, expected)
    settings = grading.Settings(
        file=str(file),
        sha256=digest,
        rows=rows,
        grader=grader,
        version=VERSIONS[grader],
        options=options,
        response=response,
        gold=gold,
    )
    with grading.open_output(out, settings, expected) as (output, summary):
        _grade(settings, output, summary, processes, expected)
    for table in tables(summary):
        Console().print(table)
    note.print(f"grades: {out}")
    if summary.undecided:
        left_out = "has no verdict and is" if summary.undecided == 1 else "have no verdict and are"
        note.print(f"{counted(summary.undecided, 'row')} {left_out} left out of the accuracy")
        raise typer.Exit(1)


def _grade(
    settings: grading.Settings,
    output: IO[bytes],
    summary: Summary,
    processes: int | None,
    expected: str | None,
) -> None:
    """Grade what is not there yet, with a bar."""
    name, total = Path(settings.file).name, settings.rows
    unit = "row" if total == 1 else "rows"
    try:
        with progress(name, total, done=summary.rows, unit=unit) as bar:
            grades = grading.graded_rows(settings, summary.rows, processes, expected)
            for row, graded in grading.write_rows(output, grades):
                summary.add(row, graded)
                bar.advance(1, f"{100 * summary.right / summary.rows:.1f} % right")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{summary.rows} of {counted(settings.rows, 'row')} are in {output.name}; "
            "the same command goes on from there"
        ) from None
