"""`mas-bench fetch`: suites' files and the recipes' training sets, for whoever has a network."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from benchmarks.cli.notes import load_with_notes, note, quietly
from benchmarks.suites import fingerprint, suite, suites
from benchmarks.suites.contamination import Benchmarks
from benchmarks.suites.fetching import fetch_suite
from benchmarks.suites.spec import YAML, Suite
from benchmarks.suites.training import at_hand, training_sets, write_training
from mas_envs.errors import UnknownName
from retrievers.shell.progress import stages

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="SUITE...", help="Names of `mas-bench list`; drmas_math, drmas_search to train."
    ),
]
To = Annotated[Path, typer.Option(help="Folder for the files, to be given as --data.")]
FromHub = Annotated[
    bool, typer.Option("--from-hub", help="Not the pinned copy, where there is one.")
]
Endpoint = Annotated[
    str | None,
    typer.Option(help="A mirror of huggingface.co (or HF_ENDPOINT) or raw.githubusercontent.com."),
]


def fetch(
    names: Names, to: To = Path("suites"), from_hub: FromHub = False, endpoint: Endpoint = None
) -> None:
    """Fetch suites' files, check them, and say what is pinned; continues an interrupted fetch.

    Exit code 1 when a content is not the canonical one.
    """
    specs = {name: _spec(name) for name in names}
    last = sorted(specs.items(), key=lambda named: named[1].name in training_sets())
    for one in specs.values():
        if one.name not in training_sets():
            note.print(f"{one.name}: licence: {one.licence}")
    right = True
    for name, spec in last:  # training sets, which are held against the suites
        with stages() as told:
            found = fetch_suite(spec, to, from_hub=from_hub, endpoint=endpoint, progress=told)
        typer.echo(f"{name}: {found.path} from {found.source}")
        if spec.name in training_sets():
            _training(spec, found.path, to)
        else:
            right &= _checked(name, found.path, to)
    if not right:
        raise typer.Exit(1)


def _spec(name: str) -> Suite:
    if name in training_sets():
        return training_sets()[name]
    if name not in suites() and not name.partition("#")[0].endswith(YAML):
        raise UnknownName("suite", name, [*suites(), *training_sets()])
    return suite(name)


def _checked(name: str, path: Path, folder: Path) -> bool:
    """Whether the content is right, as far as anybody knows."""
    spec = suite(name)
    found = fingerprint(load_with_notes(name, path))
    if spec.sha256 in (None, found):
        typer.echo(f"mas-bench run {quote(name)} --data {quote(str(folder))} --policy … --out …")
        return True
    fix = "leave out --from-hub to get the copy that has it" if spec.origin else "compare the two"
    note.print(f"{path}: is kept, but scores on it are not comparable; {fix}")
    return False


def _training(spec: Suite, path: Path, folder: Path) -> None:
    """Split the questions; see `benchmarks.suites.training`."""
    with quietly():
        known = at_hand(folder)
    out = folder / f"{spec.name}_train.jsonl"
    counts = write_training(spec, path, out, Benchmarks(known))
    kinds = ("train", "dev", "overlap", "left out")
    typer.echo(f"{out}: " + ", ".join(f"{counts[kind]:,} {kind}" for kind in kinds))
    missing = [one for one in suites() if one not in known]
    if missing:
        note.print(f"note: not held against {', '.join(missing)}: fetch them to {folder} and "
                   "this once more")  # fmt: skip
    typer.echo(f"tasks: {{train: {{source: {out}, split: train}}, "
               f"dev: {{source: {out}, split: dev}}}}")  # fmt: skip
