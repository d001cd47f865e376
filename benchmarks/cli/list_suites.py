"""`mas-bench list`: which suites there are."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.cli.notes import counted, note
from benchmarks.suites import suites
from benchmarks.suites.training import training_sets


def list_suites() -> None:
    """The suites, how many questions they have, what is pinned of their source, and licences."""
    table = Table("suite", "title")
    table.add_column("questions", justify="right")
    table.add_column("pinned")
    licences: dict[str, list[str]] = {}
    for one in suites().values():
        pinned = ["content"] if one.sha256 else []
        pinned += ["copy"] if one.origin else []
        pinned += ["hub"] if one.hub and one.hub.revision else []
        known = "embedded" if one.tasks else ", ".join(pinned) or "unpinned"
        table.add_row(one.name, one.title.partition(" (")[0], f"{one.rows or 0:,}", known)
        licences.setdefault(one.licence, []).append(one.name)
    Console().print(table)
    for licence, names in licences.items():
        typer.echo(f"{', '.join(names)}: {licence}")
    on_hub = [one for one in suites().values() if one.hub and not one.hub.revision]
    note.print(
        "content: the SHA-256 of questions and golds is known; copy: the commit of a file that has "
        f"them. The hub's revision is unpinned for {counted(len(on_hub), 'suite')}. Suites that "
        "are not embedded read a local copy, --data FILE or a folder: mas-bench fetch SUITE gets "
        "it. Training sets to fetch: " + ", ".join(training_sets())
    )
