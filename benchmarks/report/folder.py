"""A report as a folder: the tables, the numbers, the plots, and every conversation to read.

OUT/index.html, OUT/chunks/    results and the episode viewer; opens from file://
OUT/table.md, OUT/table.tex    the table of scores
OUT/diagnostics.json           suite → system → `Diagnosis.to_json()`
OUT/plots/*.png
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.diagnostics import Diagnosing, Diagnosis
from benchmarks.metrics import Score, pass_curve
from benchmarks.report.plots import draw, needs_matplotlib
from benchmarks.report.render import latex, markdown
from benchmarks.report.systems import System
from benchmarks.report.table import ScoreTable
from benchmarks.run_folder import Stored, write_json
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.viewer import ViewerFolder
from mas_envs.errors import BadFile, UserError
from mas_envs.files import whole_file


@dataclass
class _Read:
    """What one pass over the episodes of all systems gathers, beside the viewer."""

    curves: dict[str, dict[str, list[Score]]] = field(default_factory=lambda: defaultdict(dict))
    found: dict[str, dict[str, Diagnosis]] = field(default_factory=lambda: defaultdict(dict))


def write_report(
    systems: Sequence[System],
    table: ScoreTable,
    out: Path,
    on_episode: Callable[[], object] = lambda: None,
) -> list[str]:
    """Write the folder; returns what is missing in it, in words. Streams the episodes once.

    An earlier report in the folder is replaced. Raises `BadFile` for a folder with other content.
    """
    _check_folder(out, [run for system in systems for run in system.runs.values()])
    read = _Read()
    with ViewerFolder(out, [system.name for system in systems]) as viewer:
        for system in systems:
            for suite, run in system.runs.items():
                _read_run(system.name, suite, run, table, viewer, read, on_episode)
        why = needs_matplotlib()
        plots = {} if why else draw(read.curves, read.found, [system.name for system in systems])
        viewer.finish(
            "Benchmark report",
            headline=_headline(table),
            notes=[*table.notes, *([why] if why else [])],
            figures={caption: png for caption, png in plots.values()},
        )
    _write(out / "table.md", markdown(table).encode())
    _write(out / "table.tex", latex(table).encode())
    diagnostics = {
        suite: {name: one.to_json() for name, one in by_system.items()}
        for suite, by_system in read.found.items()
    }
    write_json(out / "diagnostics.json", diagnostics)
    (out / "plots").mkdir(exist_ok=True)
    for name, (_, png) in plots.items():
        _write(out / "plots" / f"{name}.png", png)
    return [why] if why else []


def _read_run(
    name: str, suite: str, run: Stored, table: ScoreTable, viewer: ViewerFolder, read: _Read,
    on_episode: Callable[[], object],
) -> None:  # fmt: skip
    diagnosing, outcomes = Diagnosing(), defaultdict[str, list[bool]](list)
    for episode in run.episodes():
        viewer.add(episode, name, suite)
        diagnosing.add(episode)
        if (right := _right(episode)) is not None:
            outcomes[episode.task].append(right)
        on_episode()
    if table.rows[name].get((suite, table.metrics[0])) is not None:
        read.curves[suite][name] = pass_curve(outcomes)
    if diagnosing.questions:
        read.found[suite][name] = diagnosing.result()


def _right(episode: Episode) -> bool | None:
    """None for what is no sample of its question."""
    if episode.status != "done" or "fork" in episode.provenance or episode.grade is None:
        return None
    return episode.grade.correct


def _headline(table: ScoreTable) -> dict[str, dict[str, Any]]:
    """The table as the viewer shows it: all of its numbers, or what is in their place."""
    rows: dict[str, dict[str, Any]] = {}
    for name, cells in table.rows.items():
        rows[name] = {}
        for suite in table.columns:
            for metric in table.metrics:
                number = cells.get((suite, metric))
                shown = None if (suite, metric) in cells else "—"
                rows[name][f"{suite} {metric}"] = shown if number is None else asdict(number)
    return rows


def _check_folder(out: Path, runs: Sequence[Stored]) -> None:
    if any(out.resolve() == run.folder.resolve() for run in runs) or (out / "run.json").exists():
        raise UserError(f"--out {out}: is the folder of a run; give one for the report")
    if not out.is_dir():
        return
    if any(out.iterdir()) and not (out / "chunks").is_dir():
        fix = "give a new folder, or that of an earlier report"
        raise BadFile(out, "holds other files and no report", fix=fix)
    for plot in (out / "plots").glob("*.png"):
        plot.unlink()


def _write(path: Path, content: bytes) -> None:
    with whole_file(path) as temporary:
        temporary.write_bytes(content)
