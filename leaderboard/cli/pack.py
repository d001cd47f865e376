"""`mas-leaderboard pack`: a run's folder as one file that can be handed in."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from leaderboard.declared import Declared
from leaderboard.hardware import detected
from leaderboard.pack import pack as pack_run
from mas_envs.errors import UserError
from retrievers.shell.progress import say

EXAMPLES = [
    "mas-leaderboard pack runs/aime24 -o sub.zip --system pair --team 'our lab'",
    "mas-leaderboard pack runs/aime24 -o sub.zip --system pair --team 'our lab' \\",
    "    --model Qwen3-4B=4.0B --revision Qwen3-4B=1cfa9a7 --contact me@lab.org \\",
    "    --training-file train.jsonl --cost 12.50",
    "mas-leaderboard pack runs/aime24 -o sub.zip --system base --team us --untrained",
]
SIZES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
DECLARED = "Declared, believed"


def pack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of mas-bench run.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The zip to write.")],
    system: Annotated[str, typer.Option(help="What you call the system.")],
    team: Annotated[str, typer.Option(help="Who hands it in.")],
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=SIZE", rich_help_panel=DECLARED,
                     help="Parameters of a model, as 4.0B or 4000000000. Repeatable."),
    ] = None,
    revision: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=REV", rich_help_panel=DECLARED,
                     help="Which revision of a model it was. Repeatable."),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(rich_help_panel=DECLARED,
                     help="What it ran on; `detect` describes this machine."),
    ] = None,
    contact: Annotated[
        str | None,
        typer.Option(rich_help_panel=DECLARED, help="Whom to ask. Never published."),
    ] = None,
    training_data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", rich_help_panel=DECLARED,
                     help="Data that a model was trained on, by name. Repeatable."),
    ] = None,
    training_file: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", rich_help_panel=DECLARED,
                     help="The same, as JSONL or Parquet: held against the questions. Repeatable."),
    ] = None,
    untrained: Annotated[
        bool,
        typer.Option("--untrained", rich_help_panel=DECLARED,
                     help="Nothing was trained: the models are their public checkpoints."),
    ] = False,
    cost: Annotated[
        float | None,
        typer.Option(metavar="USD", rich_help_panel=DECLARED,
                     help="What the run cost; without it, what its own accounting says."),
    ] = None,
) -> None:  # fmt: skip
    """Pack a complete run: manifest and conversations, same bytes for the same run."""
    declared = Declared(
        contact=contact,
        hardware=detected() if hardware == "detect" else hardware,
        revisions=_by_model(revision or (), "--revision"),
        parameters={name: _size(text) for name, text in _by_model(model or (), "--model").items()},
        training_data=tuple(training_data or ()),
        training_files=tuple(training_file or ()),
        untrained=untrained,
        cost_usd=cost,
    )
    manifest = pack_run(run, out, system=system, team=team, declared=declared)
    scores = ", ".join(f"{name} {score.value:.1f} %" for name, score in manifest.scores.items())
    typer.echo(f"{out}: {manifest.suite.name}, {scores}")
    if manifest.training is None:
        say("note: nothing is said of training data; --training-data, --training-file, --untrained")
    say(f"Check it with: mas-leaderboard verify {out}")


def _by_model(pairs: Sequence[str], option: str) -> dict[str, str]:
    """{model: value} of each MODEL=VALUE; a model's name may have "=" in it. Raises `UserError`."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.rpartition("=")
        if not equals or not name or not value:
            raise UserError(f"{option} {pair!r}; write it as MODEL=VALUE")
        if name in found:
            raise UserError(f"{option} {name}=…: {found[name]} and {value}; give one")
        found[name] = value
    return found


def _size(text: str) -> float:
    """Parameters, of 4e9, 4B or 4000000000. Raises `UserError`."""
    unit = SIZES.get(text[-1:].upper(), 0)
    try:
        size = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        size = 0.0
    if not (isfinite(size) and size > 0):
        raise UserError(f"--model …={text}: no number of parameters; write it as 4.0B or 596000000")
    return size
