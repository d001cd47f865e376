"""`mas-bench report`: tables, plots and conversations, recomputed from the stored episodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.accounting import read_prices
from benchmarks.cli.notes import note
from benchmarks.cli.scores import print_scores
from benchmarks.cli.usage import print_unheard, print_usage
from benchmarks.report import latex, markdown, score_table, systems, terminal
from benchmarks.report.folder import write_report
from benchmarks.report.render import EXPLAINED
from benchmarks.run_folder import Stored
from mas_envs.console import progress
from mas_envs.errors import BadFile
from mas_envs.files import whole_file

Folders = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]DIR…",
        help="Folders of runs, or of several suites. Folders with the same NAME are one row.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="New folder (or that of the same runs' report) for tables, plots, diagnostics and a "
        "page with every conversation.",
    ),
]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write the table there.")
]
Latex = Annotated[
    Path | None, typer.Option("--latex", metavar="FILE", help="Write the table there, booktabs.")
]
PriceTable = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE.yaml", help="Adds up costs; a table as for `run`."),
]


def report(
    folders: Folders,
    out: Out = None,
    markdown_file: Markdown = None,
    latex_file: Latex = None,
    prices: PriceTable = None,
) -> None:
    """Print the scores of runs, recomputed from their stored episodes: avg@k and pass@k per suite.

    A run with missing samples has no number. A system has a mean only if it has a number for all
    suites of the table. A suite is marked † where the questions or golds were not those of the
    benchmark, and * where only some were asked (--limit).
    """
    priced = None if prices is None else read_prices(prices)
    for file in (markdown_file, latex_file):
        if file is not None and not file.parent.is_dir():
            raise BadFile(file, "its folder does not exist", fix="create it, or give another file")
    found = systems(folders)
    runs = [run for system in found for run in system.runs.values()]
    summaries = {run.folder: run.summary(priced) for run in runs}
    table = score_table(found, lambda run: summaries[run.folder])
    if len(runs) == 1:
        _print_one(runs[0], summaries[runs[0].folder])
    else:
        console = Console()
        console.print(*terminal(table, console.width))
        for line in (EXPLAINED, *table.notes):
            note.print(line)
    for file, text in ((markdown_file, markdown(table)), (latex_file, latex(table))):
        if file is not None:
            with whole_file(file) as temporary:
                temporary.write_text(text, encoding="utf-8")
            note.print(f"table: {file}")
    if out is not None:
        episodes = sum(one["episodes"] + one["failed"] for one in summaries.values())
        with progress("report", episodes) as bar:
            missing = write_report(found, table, out, lambda: bar.advance(1))
        for why in missing:
            note.print(f"note: {why}")
        note.print(f"report: {out / 'index.html'}")


def _print_one(run: Stored, summary: Mapping[str, Any]) -> None:
    """As `mas-bench run` prints it."""
    print_scores(run, summary)
    print_usage(summary["usage"])
    print_unheard(summary["usage"], run.settings.sampling.max_tokens)
