"""`mas-bench rescore`: grade a run's stored conversations again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.cli.notes import counted, note
from benchmarks.cli.scores import print_scores
from benchmarks.rescore import Change, Counts, rescore, rescored_settings
from benchmarks.run_folder import Stored, read_run, write_json
from benchmarks.samples import index_rows, verdict
from mas_envs.console import progress
from mas_envs.errors import UserError


def rescore_run(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")],
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|JSON",
            help="The environment's `grading`: of math default, strict, drmas or options as JSON; "
            "of search a normaliser. By default that of the run, by the rules of this version.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the rescored run; DIR-rescored by default.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
    top: Annotated[int, typer.Option(min=0, help="Changes to list.")] = 10,
) -> None:
    """Grade the stored conversations of DIR again, into a run's folder of its own.

    Nothing is generated and DIR stays as it is. The new folder is one like any other (report,
    compare, export); its changes.jsonl has every verdict that changed, old and new.
    """
    stored = read_run(folder)
    if out is None:
        named = folder if folder.name else folder.resolve()
        out = named.with_name(f"{named.name}-rescored")
    episodes = sum(1 for _ in index_rows(folder / "episodes"))
    if not episodes:
        raise UserError(f"{folder}: no episode to grade")
    settings = rescored_settings(stored, _grading(policy))
    counts = Counts()
    first: list[Change] = []
    with progress(stored.settings.suite["name"], episodes) as bar:
        for counts, change in rescore(stored, out, settings, processes):
            if change is not None and len(first) < top:
                first.append(change)
            bar.advance(1, f"{counts.changed} changed")
    again = read_run(out)
    summary = again.summary()
    write_json(out / "summary.json", summary)
    Console().print(_verdicts(counts))
    if first:
        Console().print(_changes(first, counts.changed))
    print_scores(again, summary)
    _tell(again, counts, out)
    if summary["problem"]:
        raise typer.Exit(1)


def _grading(policy: str | None) -> Any:
    if policy is None or not policy.lstrip().startswith("{"):
        return policy
    try:
        return json.loads(policy)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--policy {policy!r:.80}: not JSON ({error})") from None


def _verdicts(counts: Counts) -> Table:
    kinds = (True, False, None)
    table = Table("before", *(f"now {verdict(kind)}" for kind in kinds))
    for before in kinds:
        row = [counts.verdicts[before, after] for after in kinds]
        if any(row):
            table.add_row(verdict(before), *(f"{count:,}" for count in row))
    return table


def _changes(changes: Iterable[Change], total: int) -> Table:
    listed = list(changes)
    title = f"the first {len(listed)} of {counted(total, 'change')}"
    table = Table("question", "sample", "before", "now", "reason", title=title)
    for one in listed:
        before, after = (_shown(grade) for grade in (one.before, one.after))
        reason = (one.after.reason or one.after.status) if one.after else ""
        question = Text(f"{one.task[:8]} {' '.join(one.question.split())[:40]}")
        table.add_row(question, str(one.sample), before, after, Text(reason[:60]))
    return table


def _shown(grade: Any) -> Text:
    if grade is None:
        return Text("no grade")
    score = "" if grade.score is None else f" {grade.score:.2f}"
    return Text(f"{verdict(grade.correct)}{score}: {str(grade.answer)[:24]}")


def _tell(again: Stored, counts: Counts, out: Path) -> None:
    record = again.run.rescored or {}
    before, after = (record.get(f"graders_{when}", []) for when in ("before", "after"))
    if before != after:
        note.print(f"graders: {', '.join(before)} before, {', '.join(after)} now")
    if counts.failed:
        note.print(f"{counted(counts.failed, 'failed episode')} kept as they are")
    note.print(f"rescored run: {out}; {counted(counts.changed, 'change')} in changes.jsonl there")
