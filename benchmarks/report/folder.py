"""A report as a folder: the tables, the numbers, the plots, and every conversation to read.

OUT/index.html, OUT/chunks/    results and the episode viewer; opens from file://
OUT/table.md, OUT/table.tex    the table of scores
OUT/diagnostics.json           suite → system → `Diagnosis.to_json()`
OUT/plots/*.png
OUT/report.json                of which runs it is
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.diagnostics import Diagnosing, Diagnosis
from benchmarks.metrics import Score, pass_curve
from benchmarks.report.latex import latex
from benchmarks.report.plots import draw, needs_matplotlib
from benchmarks.report.render import markdown
from benchmarks.report.systems import System
from benchmarks.report.table import ScoreTable
from benchmarks.run_folder import Stored, write_json
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.viewer import ViewerFolder
from mas_envs.errors import BadFile, UserError
from mas_envs.files import whole_file

RECORD = "report.json"


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

    An earlier report of the same runs is replaced. Raises `UserError` for one of other runs and for
    the folder of a run, `BadFile` for a folder with other content.
    """
    _check_folder(out, systems)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / RECORD, _record(systems))  # first, so that the same command may begin anew
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
                cell = shown if number is None else asdict(number)
                rows[name][f"{table.heading(suite)} {metric}"] = cell
    return rows


def _check_folder(out: Path, systems: Sequence[System]) -> None:
    runs = [run for system in systems for run in system.runs.values()]
    if any(out.resolve() == run.folder.resolve() for run in runs) or (out / "run.json").exists():
        raise UserError(f"--out {out}: is the folder of a run; give one for the report")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (out / RECORD).is_file():
        raise BadFile(out, f"holds other files and no {RECORD}", fix="give a new folder as --out")
    before, now = _read_record(out / RECORD), _record(systems)
    if _ids(before) != _ids(now):
        folders = ", ".join(one["folder"] for runs in before.values() for one in runs.values())
        raise UserError(f"--out {out}: holds the report of other runs ({folders}); give another "
                        "folder, or delete it")  # fmt: skip
    for plot in (out / "plots").glob("*.png"):
        plot.unlink()


_Record = Mapping[str, Mapping[str, Mapping[str, str]]]


def _record(systems: Sequence[System]) -> _Record:
    """System → suite → the run's folder as it was given, and what tells the run from all others."""
    return {
        system.name: {
            suite: {"folder": str(run.folder), "run": _run_id(run)}
            for suite, run in system.runs.items()
        }
        for system in systems
    }


def _run_id(run: Stored) -> str:
    """Of its settings and the time it began at: a copy in another folder is the same run.

    The sessions of a rescored run are those of its original and the rescoring, the last.
    """
    place = -1 if run.run.rescored else 0
    began = [run.run.sessions[place].started] if run.run.sessions else []
    return hashlib.sha256(msgspec.json.encode([run.settings, began])).hexdigest()


def _read_record(path: Path) -> _Record:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, dict[str, str]]])
    except msgspec.DecodeError:
        raise BadFile(path, "is no record of a report", fix="give a new folder as --out") from None


def _ids(record: _Record) -> list[str]:
    return sorted(one["run"] for runs in record.values() for one in runs.values())


def _write(path: Path, content: bytes) -> None:
    with whole_file(path) as temporary:
        temporary.write_bytes(content)
