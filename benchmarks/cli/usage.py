"""How a run's calls, tokens, seconds and costs are printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cli.notes import counted, note, seconds


def print_usage(
    usage: Mapping[str, Any], title: str = "all calls, also of failed episodes"
) -> None:
    """A row per agent on stdout, and on stderr what is not known of the costs."""
    agents: Mapping[str, Any] = usage["agents"]
    if not agents:
        return
    priced = bool(usage["prices"] or usage["unpriced"])
    columns = ["calls", "prompt tokens", "response tokens", "median s", "95 % s"]
    table = Table("agent", title=title)
    for name in [*columns, *(["USD"] if priced else [])]:
        table.add_column(name, justify="right")
    for agent, used in agents.items():
        row = [f"{used['calls']:,}", _tokens(used, "prompt"), _tokens(used, "response")]
        row += [seconds(used["seconds"]["median"]), seconds(used["seconds"]["p95"])]
        table.add_row(agent, *row, *([_usd(used["cost_usd"])] if priced else []))
    if priced and len(agents) > 1:
        table.add_row("all", *[""] * len(columns), _usd(usage["cost_usd"]))
    Console().print(table)
    if usage["unpriced"]:
        note.print(f"no cost: the price table lacks {', '.join(map(repr, usage['unpriced']))}")
    uncounted = sum(used["uncounted"] for used in agents.values())
    if uncounted and (priced or uncounted < sum(used["calls"] for used in agents.values())):
        cost = ", so there is no cost" if priced else ""
        note.print(f"note: of {counted(uncounted, 'call')} nobody counted the tokens{cost}")


def print_unheard(usage: Mapping[str, Any], max_tokens: int) -> None:
    """On stderr, which calls count as wrong though the model did not come to say its answer."""
    for agent, used in usage["agents"].items():
        calls = f"of {counted(used['calls'], 'call')} of {agent}"
        if used["truncated"]:
            note.print(f"note: {used['truncated']} {calls} were cut off at max_tokens {max_tokens} "
                       "or the end of the model's context; raise --max-tokens")  # fmt: skip
        if used["overflowed"]:
            note.print(f"note: {used['overflowed']} {calls} did not fit the model's context; serve "
                       "it with a longer one, or lower --max-tokens")  # fmt: skip
        if used["empty"]:
            note.print(f"note: {used['empty']} {calls} got an empty answer")


def _tokens(used: Mapping[str, Any], kind: str) -> str:
    """The count, as a lower bound where some calls have none."""
    if used["uncounted"] == used["calls"]:
        return "—"
    return f"{'≥ ' if used['uncounted'] else ''}{used[f'{kind}_tokens']:,}"


def _usd(cost: float | None) -> str:
    return "—" if cost is None else f"{cost:,.2f}" if cost >= 1 else f"{cost:.4g}"
