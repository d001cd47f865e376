"""`mas-bench contamination`: does a training file hold questions of a benchmark?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.cli.copies import named_copies
from benchmarks.cli.notes import note, quietly
from benchmarks.suites import load_suite, suites
from benchmarks.suites.contamination import Benchmarks, Touched, contamination
from benchmarks.suites.training import at_hand
from mas_envs.errors import BadFile, UserError
from mas_envs.tasks.files import read_jsonl, read_parquet

SHOWN = 10  # training rows of a suite
TrainingFile = Annotated[
    Path, typer.Argument(metavar="TRAIN", help="JSONL or Parquet, as mas-train reads it.")
]
Chosen = Annotated[
    list[str] | None,
    typer.Option("--suite", help="Only this one; a name or FILE.yaml#NAME. Repeatable."),
]
Files = Annotated[
    list[str] | None,
    typer.Option("--data", help="SUITE=FILE, or the folder of `mas-bench fetch`. Repeatable."),
]
QuestionKey = Annotated[str, typer.Option("--question", help="Key of the question in JSONL.")]
AnswerKey = Annotated[str, typer.Option("--answer", help="Key of the answer in JSONL.")]
AsJson = Annotated[bool, typer.Option("--json", help="Everything that was found, as JSON.")]


def check_contamination(
    train: TrainingFile,
    suite: Chosen = None,
    data: Files = None,
    question: QuestionKey = "question",
    answer: AnswerKey = "answer",
    as_json: AsJson = False,
) -> None:
    """Hold TRAIN against all suites at hand: whole questions, and 13 words in a row.

    At hand are embedded suites and those that --data names. Exit code 1 if any question is
    touched.
    """
    with quietly():
        chosen = _suites(suite or (), data or ())
    found = contamination(Benchmarks(chosen), _questions(train, question, answer))
    if as_json:
        typer.echo(json.dumps({name: _plain(one) for name, one in found.items()}, indent=1))
    else:
        Console().print(_table(found))
        for line in _rows(found):
            typer.echo(line)
        for match in (match for one in found.values() for match in one.examples):
            note.print(f"{match.kind}: question {match.question} of {match.suite} and training row "
                       f"{match.row} share: {match.shared}")  # fmt: skip
        missing = [name for name in suites() if name not in found]
        if missing and not suite:
            note.print(f"note: not at hand, so not held against it: {', '.join(missing)}")
    if any(one.touched for one in found.values()):
        raise typer.Exit(1)


def _suites(names: list[str] | tuple[()], data: list[str] | tuple[()]) -> dict[str, Any]:
    files, folders = named_copies(data)
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"--data {folder}: no such folder; give SUITE=FILE or a folder")
    if not names:
        found: dict[str, Any] = {}
        for folder in folders:
            found |= at_hand(folder)
        return found | at_hand(None, files)
    return {
        name: load_suite(name, files.get(name) or (folders[0] if folders else None))
        for name in names
    }


def _questions(train: Path, question: str, answer: str) -> Iterator[str]:
    """The questions of a training file, one at a time."""
    if not train.is_file():
        raise BadFile(train, "no such file", fix="give a .jsonl or .parquet file")
    if train.suffix not in (".jsonl", ".parquet"):
        raise BadFile(
            train, f"is a {train.suffix or 'nameless'} file", fix="give .jsonl or .parquet"
        )
    rows = (
        read_parquet(train) if train.suffix == ".parquet" else read_jsonl(train, question, answer)
    )
    empty = True
    for asked, _, _ in rows:
        empty = False
        yield asked
    if empty:
        raise BadFile(train, "has no row")


def _table(found: dict[str, Touched]) -> Table:
    table = Table()
    table.add_column("suite", overflow="fold")
    for name in ("questions", "touched", "exact", "contained", "13-gram"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, one in found.items():
        kinds = [len(one.by_kind.get(kind, ())) for kind in ("exact", "contained", "13-gram")]
        counts = (one.questions, len(one.touched), *kinds)
        table.add_row(Text(name), *(f"{count:,}" for count in counts))
    return table


def _rows(found: dict[str, Touched]) -> Iterator[str]:
    """Which rows of the training file touch each suite."""
    for name, one in found.items():
        if one.rows:
            more = f" and {len(one.rows) - SHOWN:,} more" if one.rows[SHOWN:] else ""
            yield f"training rows that touch {name}: {', '.join(map(str, one.rows[:SHOWN]))}{more}"


def _plain(one: Touched) -> dict[str, Any]:
    """{"questions": …, "touched": […], "exact": {question: [rows]}, …}; questions from 0."""
    kinds = {str(kind): places for kind, places in one.by_kind.items()}
    return {"questions": one.questions, "touched": one.touched, "rows": one.rows, **kinds}
