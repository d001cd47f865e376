"""How a run's scores are printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cli.notes import counted, note
from benchmarks.contents import foreign
from benchmarks.run_folder import Stored


def print_scores(stored: Stored, summary: Mapping[str, Any]) -> None:
    """A run's table on stdout, and what a reader of it must know on stderr."""
    settings = stored.settings
    targets = {role: policy["target"] for role, policy in settings.policies.items()}
    named = [f"{role}={target}" for role, target in targets.items()]
    who = named if len(set(targets.values())) > 1 else list(targets.values())[:1]
    title = f"{settings.suite['name']} · {settings.env['id']} · {', '.join(who)}"
    table = Table("metric", "value", "95 % interval", "questions", "samples each", title=title)
    for metric, score in summary.items():
        if "@" not in metric:
            continue
        if score is None:
            table.add_row(metric, "—", "—", f"{settings.questions:,}", str(settings.k))
            continue
        between = f"{score['low']:.1f} to {score['high']:.1f}"
        counts = (f"{score['questions']:,}", str(score["samples"]))
        table.add_row(metric, f"{score['value']:.1f} %", between, *counts)
    Console().print(table)
    if why := foreign(settings.suite):
        note.print(f"note: {settings.suite['name']}: {why}")
    if settings.questions < settings.suite["rows"]:
        note.print(f"note: {settings.questions} of the suite's {settings.suite['rows']} questions")
    if summary["undecided"]:
        note.print(f"note: the grader could not decide {counted(summary['undecided'], 'episode')}; "
                   "that is neither right nor wrong")  # fmt: skip
    for reason, count in summary["failures"].items():
        note.print(f"failed, not wrong: {count} × {reason}")
    if summary["problem"]:
        note.print(f"no headline number: {summary['problem']}")
