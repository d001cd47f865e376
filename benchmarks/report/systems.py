"""Which runs belong together: a system is what was measured, and has a run for each suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.run_folder import Stored, read_run
from mas_envs.errors import BadFile, UserError


@dataclass(slots=True)
class System:
    """A row of the table: its name and its run of each suite."""

    name: str
    runs: dict[str, Stored] = field(default_factory=dict)


def systems(folders: Sequence[str]) -> list[System]:
    """The systems that `folders` hold, in their order. Each is DIR or NAME=DIR.

    DIR is the folder of a run, or one with such folders in it (several suites of one system).
    Folders given the same name are one system. Without a name it is the folder's own; where two
    would be alike, the whole path. Raises `BadFile` for a folder without a run, and `UserError`
    for runs that no table can hold together: one suite twice in a system, two values of k, or two
    contents of one suite.
    """
    named = [_split(folder) for folder in folders]
    shared = Counter(path.resolve().name for name, path in named if name is None)
    found: dict[str, System] = {}
    for given, path in named:
        own = path.resolve().name
        name = given or (own if shared[own] == 1 else str(path))
        system = found.setdefault(name, System(name))
        for stored in runs_in(path):
            suite = stored.settings.suite["name"]
            if suite in system.runs:
                raise UserError(
                    f"{system.runs[suite].folder} and {stored.folder}: two runs of {suite} in the "
                    f"system {name!r}; give each a name: NAME={stored.folder}"
                )
            system.runs[suite] = stored
    _check_together([run for system in found.values() for run in system.runs.values()])
    return list(found.values())


def runs_in(folder: Path) -> list[Stored]:
    """The run in a folder, or those in the folders directly below it. Raises `BadFile`."""
    below = sorted(path.parent for path in folder.glob("*/run.json"))
    if (folder / "run.json").exists() or not below:
        return [read_run(folder)]
    return [read_run(path) for path in below]


def _split(given: str) -> tuple[str | None, Path]:
    """NAME=DIR → (NAME, DIR); DIR → (None, DIR), also where a folder's own name has an "="."""
    name, equals, path = given.partition("=")
    if not equals or Path(given).is_dir():
        return None, Path(given)
    if not name or not path:
        raise BadFile(given, "neither a folder nor NAME=DIR")
    return name, Path(path)


def _check_together(runs: Sequence[Stored]) -> None:
    for run in runs:
        if (k := run.settings.k) != (first := runs[0]).settings.k:
            raise UserError(f"{first.folder} has k = {first.settings.k}, {run.folder} has k = {k}; "
                            "report runs with as many samples per question")  # fmt: skip
    for first, run in _same_suite(runs):
        if first.settings.suite["sha256"] != run.settings.suite["sha256"]:
            raise UserError(f"{first.folder} and {run.folder} played {run.settings.suite['name']} "
                            "with different contents; report them apart")  # fmt: skip


def _same_suite(runs: Sequence[Stored]) -> Iterator[tuple[Stored, Stored]]:
    """Each run beside the first of its suite."""
    first: dict[str, Stored] = {}
    for run in runs:
        yield first.setdefault(run.settings.suite["name"], run), run
