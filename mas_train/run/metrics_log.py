"""What a run measured: one JSON object per step in `metrics.jsonl`, mirrored to TensorBoard.

The file is the truth (plots and resume read it); TensorBoard and weights & biases are views.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mas_envs.errors import BadFile, UserError
from mas_envs.files import whole_file


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All steps of a run, in order; a torn last line (the writer was killed) is left out."""
    if not path.is_file():
        raise BadFile(path, "no such file", fix="give the metrics.jsonl of a run")
    rows = []
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:  # UnicodeDecodeError is one
            if number == len(lines):
                break
            raise BadFile(path, f"not JSON ({error})", number, "remove the line") from None
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise BadFile(path, "not a step's metrics: it has no 'step'", number, "remove the line")
        rows.append(row)
    return rows


def flatten(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Nested numbers as ("agents/solver/mu", 0.4) pairs; everything else is left out."""
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def _strict(value: Any) -> Any:
    """Numbers that are not finite (a skipped step's gradient norm) as null: JSON has no others."""
    if isinstance(value, Mapping):
        return {key: _strict(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def headline(metrics: Mapping[str, Any]) -> str:
    """A step in a few words, for a progress bar. Where the team earned nothing, also what each
    agent's turns earned by themselves: in some environments there is nothing else.
    """
    reward = metrics["reward"]
    if reward is None:
        return "all episodes failed"
    own = {role: agent["own_reward"] for role, agent in metrics["agents"].items()}
    each = ", ".join(f"{role} {mean:+.3f}" for role, mean in own.items())
    return f"team reward {reward:.3f}" + (f"; own {each}" if each and reward == 0 else "")


class MetricsLog:
    """Appends to `folder/metrics.jsonl`; steps from `start` on are dropped first (resume)."""

    def __init__(
        self, folder: Path, start: int = 0, wandb: Mapping[str, Any] | None = None
    ) -> None:
        self.path = folder / "metrics.jsonl"
        kept = read_metrics(self.path) if self.path.is_file() else []
        kept = [row for row in kept if row["step"] < start]
        with whole_file(self.path) as file:
            file.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        self._file = self.path.open("a", encoding="utf-8")
        self._board = _tensorboard(folder / "tensorboard", start)
        self._wandb = _weights_and_biases(folder, wandb)

    def write(self, metrics: Mapping[str, Any]) -> None:
        """One step, written through to the operating system."""
        self._file.write(json.dumps(_strict(metrics)) + "\n")
        self._file.flush()
        step = int(metrics["step"])
        for name, value in flatten(metrics):
            if name != "step" and self._board is not None:
                self._board.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(dict(flatten(metrics)), step=step)

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def _tensorboard(folder: Path, start: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # TensorBoard is a view; a run without it is complete
        return None
    return SummaryWriter(str(folder), purge_step=start)


def _weights_and_biases(folder: Path, options: Mapping[str, Any] | None) -> Any:
    if options is None:
        return None
    try:
        import wandb
    except ImportError:
        raise UserError(
            "train.wandb is set; pip install 'mas-gym[wandb]', or set it to null"
        ) from None
    return wandb.init(dir=str(folder), resume="allow", **options)
