"""`mas-bench diagnose`: what the team did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.cli.notes import counted, note, seconds, signed
from benchmarks.diagnostics import Diagnosis, Rate
from benchmarks.diagnostics import diagnose as diagnose_episodes
from benchmarks.diagnostics.agents import SearchResult
from benchmarks.diagnostics.rounds import Revision, RevisionResult, Round
from benchmarks.diagnostics.verdicts import VerdictResult
from benchmarks.run_folder import read_run, write_json
from mas_envs.errors import BadFile

AFTER = {"right": "of right answers", "wrong": "of wrong answers",
         "sufficient": "where it sufficed", "insufficient": "where it did not"}  # fmt: skip


def diagnose(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")],
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all of it there too.")
    ] = None,
) -> None:
    """What the team did: verdicts, revisions, rounds, searches, and each agent's share.

    Everything is recomputed from the stored episodes; drafts that were not graded then are graded
    now. Failed episodes are left out, also of the calls and tokens: those are per finished
    episode. What a run used in all, `run` and `report` say.
    """
    if json is not None and not json.parent.is_dir():
        raise BadFile(json, "its folder does not exist", fix="create it, or give another file")
    stored = read_run(folder)
    found = diagnose_episodes(stored.episodes())
    console = Console()
    name, env = stored.settings.suite["name"], stored.settings.env["id"]
    console.print(f"{name} · {env}: {counted(found.episodes, 'episode')} of "
                  f"{counted(found.questions, 'question')}; 95 % intervals over questions",
                  highlight=False)  # fmt: skip
    for table in tables(found):
        console.print()
        console.print(table)
    if found.verdicts and found.verdicts.truth:
        note.print(f"verdicts are held against this: {found.verdicts.truth}")
    for part, why in found.not_applicable.items():
        note.print(f"no {part}: {why}")
    if found.episodes < stored.wanted:
        note.print(f"note: the run has {found.episodes} of {stored.wanted} samples")
    if found.failed:
        note.print(f"{counted(found.failed, 'failed episode')} left out, with calls and tokens; "
                   f"mas-bench report {folder} counts those, too")  # fmt: skip
    for line in found.notes:
        note.print(f"note: {line}")
    if json is not None:
        write_json(json, found.to_json())
        note.print(f"diagnosis: {json}")


def tables(found: Diagnosis) -> list[Table]:
    """All that applies, for a person to read."""
    shown = []
    if found.verdicts:
        shown += [_matrix(found.verdicts), _quality(found.verdicts)]
    if found.revisions:
        shown.append(_revisions(found.revisions))
    if found.rounds:
        shown.append(_rounds(found.rounds))
    if found.searches:
        shown.append(_searches(found.searches))
    return [*shown, _agents(found), _unreadable(found)]


def _table(title: str, *columns: str) -> Table:
    """Whole at 80 columns: only the first column may take several lines."""
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, no_wrap=place > 0, overflow="fold")
    return table


def _rate(rate: Rate) -> str:
    if rate.value is None:
        return "—"
    return f"{rate.value:.1f} % ({rate.low:.1f} to {rate.high:.1f})"


def _counted_rate(rate: Rate, between: str = ": ") -> str:
    counts = f"{rate.hits:,} of {rate.of:,}"
    return _rate(rate) if rate.value is None else f"{counts}{between}{_rate(rate)}"


def _matrix(found: VerdictResult) -> Table:
    table = _table("Verdicts", "verdict", *found.states)
    for verdict, row in found.matrix.items():
        table.add_row(verdict, *(f"{row[state]:,}" for state in found.states))
    return table


def _quality(found: VerdictResult) -> Table:
    (yes, precise_yes), (no, precise_no) = found.precision.items()
    table = _table("How often the verifier was right", "of its verdicts", "95 % intervals")
    table.add_row("right", _counted_rate(found.accuracy))
    table.add_row(f"… had it always said {yes}", _counted_rate(found.always))
    table.add_row(f"{yes}: right", _counted_rate(precise_yes))
    table.add_row(f"{no}: right", _counted_rate(precise_no))
    for (verdict, recall), state in zip(found.recall.items(), found.states, strict=True):
        table.add_row(f"{verdict}, {AFTER[state]}", _counted_rate(recall))
    table.add_row("could not be read", _counted_rate(found.invalid))
    if found.invalid.hits:
        read = ", ".join(f"{name} {count:,}" for name, count in found.read_as.items() if count)
        table.add_row("… and counted as", read or "not recorded")
    if found.answered is not None:
        table.add_row(f"right answers after {yes}", _counted_rate(found.answered))
    if found.undecided:
        table.add_row("not judged", f"{found.undecided:,}")
    return table


def _revisions(found: RevisionResult) -> Table:
    title = "Revisions: how often they helped or hurt"
    table = _table(title, "draft", "revised", "wrong before: now right", "right before: now wrong")

    def add(name: str, one: Revision) -> None:
        rates = (_counted_rate(rate, ":\n") for rate in (one.helped, one.hurt))
        table.add_row(name, f"{one.revisions:,}", *rates)

    for one in found.by_round:
        add(str(one.round), one)
    if len(found.by_round) > 1:
        table.add_section()
        add("all", found.all)
    return table


def _rounds(found: list[Round]) -> Table:
    title = "Had the team stopped after round"
    table = _table(title, "round", "played by", "avg", "gain, points", "tokens")
    for one in found:
        gain = one.gain
        points = ""
        if gain is not None:
            points = f"{signed(gain.points)} ({signed(gain.low)} to {signed(gain.high)})"
        tokens = f"{one.response_tokens:,}" if one.response_tokens else "—"
        table.add_row(str(one.round), f"{one.episodes:,}", _rate(one.stop_after), points, tokens)
    return table


def _searches(found: SearchResult) -> Table:
    table = _table(f"Searches: {found.mean:.2f} per episode", "searches", "episodes", "right")
    for one in found.by_count:
        table.add_row(str(one.searches), f"{one.episodes:,}", _counted_rate(one.right))
    return table


def _agents(found: Diagnosis) -> Table:
    columns = ("agent", "calls", "per episode", "tokens/episode", "s per call", "cut off")
    table = _table("Agents, in finished episodes", *columns)
    for name, agent in found.agents.items():
        tokens = agent.response_tokens_per_episode
        table.add_row(
            Text(name),
            f"{agent.calls:,}",
            f"{agent.calls_per_episode:.2f}",
            "—" if tokens is None else f"{tokens:,.0f}",
            seconds(agent.seconds_per_call),
            f"{agent.cut_off:,}",
        )
    return table


def _unreadable(found: Diagnosis) -> Table:
    table = _table("Turns that could not be read", "agent", "95 % intervals")
    for name, agent in found.agents.items():
        table.add_row(Text(name), _counted_rate(agent.invalid))
    return table
