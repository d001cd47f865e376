"""What a run does not know of itself, and whoever packs it declares."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path

import msgspec

from benchmarks.suites.contamination import Benchmarks, contamination
from leaderboard.manifest import TrainingData
from mas_envs.errors import BadFile, UserError
from mas_envs.tasks import Task
from mas_envs.tasks.files import read_jsonl, read_parquet


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """See `Manifest`. `training_data` are names, `training_files` are held against the run's
    questions; neither means that nothing is declared, unless `untrained` says that there are none.

    `revisions` and `parameters` are by model, as the run's turns name it. `cost_usd` None: as the
    run's summary.json has it.
    """

    contact: str | None = None
    hardware: str | None = None
    revisions: Mapping[str, str] = {}
    parameters: Mapping[str, float] = {}
    training_data: tuple[str, ...] = ()
    training_files: tuple[Path, ...] = ()
    untrained: bool = False
    cost_usd: float | None = None

    def __post_init__(self) -> None:
        """Raises `UserError` for training data that are none, and a cost that is no number."""
        if self.untrained and (self.training_data or self.training_files):
            raise UserError("training data are declared, and that there are none; say one of both")
        if self.cost_usd is not None and not (isfinite(self.cost_usd) and self.cost_usd >= 0):
            raise UserError(f"'cost_usd' is {self.cost_usd}; it must be a number from 0 up")

    def training(self, suite: str, questions: Iterable[str]) -> list[TrainingData] | None:
        """What the manifest says of training data. Reads the files; raises `BadFile`."""
        if not (self.untrained or self.training_data or self.training_files):
            return None
        named = [TrainingData(name=name) for name in self.training_data]
        if not self.training_files:
            return named
        tasks = [Task(id=f"{n:016x}", question=text, answer="") for n, text in enumerate(questions)]
        asked = Benchmarks({suite: tasks})
        return named + [_looked_at(file, suite, asked) for file in self.training_files]


def _looked_at(file: Path, suite: str, asked: Benchmarks) -> TrainingData:
    if not file.is_file():
        raise BadFile(file, "no such file", fix="give a .jsonl or .parquet file")
    rows = 0

    def texts() -> Iterator[str]:
        nonlocal rows
        for text, _, _ in read_parquet(file) if file.suffix == ".parquet" else read_jsonl(file):
            rows += 1
            yield text

    found = contamination(asked, texts())[suite]
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    by_kind = {str(kind): len(places) for kind, places in sorted(found.by_kind.items())}
    return TrainingData(
        name=file.name, sha256=digest, rows=rows, touched=len(found.touched), by_kind=by_kind
    )
