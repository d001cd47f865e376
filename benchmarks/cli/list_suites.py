"""`mas-bench list`: which suites there are."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks.cli.notes import note
from benchmarks.suites import suites
from benchmarks.suites.training import training_sets


def list_suites() -> None:
    """The suites, how many questions they have, and what is known of their source."""
    table = Table("suite", "title", "rows", "pinned", "licence")
    for one in suites().values():
        content = f"content {one.sha256[:10]}" if one.sha256 else "content unpinned"
        places = ["copy pinned"] if one.origin else []
        places += [f"hub {one.hub.revision or 'unpinned'}"] if one.hub else []
        source = "embedded" if one.tasks else ", ".join(places)
        table.add_row(one.name, one.title, str(one.rows), f"{content}\n{source}", one.licence)
    Console().print(table)
    note.print(
        "Suites that are not embedded read a local copy, --data FILE or a folder of them: "
        "mas-bench fetch SUITE gets it. Training sets to fetch: " + ", ".join(training_sets())
    )
