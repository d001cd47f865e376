"""Checkpoints: one folder per step, complete or not there at all.

    checkpoints/step-000020/
        state.json             schema, step, position in the stored episodes, who plays what
        <model>/               a Hugging Face folder (weights, tokenizer): loads anywhere
        <model>.optimizer.pt   optimizer and schedule; of a model on several processes a folder
                               <model>.optimizer (see `mas_train.learner.sharded.state`)

A checkpoint is written under a temporary name (`.step-000020`) and renamed when whole; it is
renamed back before it is removed. So whatever is named `step-…` is complete, and what a killed
process left under another name goes at the next save.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mas_envs.errors import BadFile, UserError

SCHEMA = 1
_NAME = re.compile(r"step-(\d{6,})")


class Saved(Protocol):
    """What a trained model brings to a checkpoint (see `mas_train.team`)."""

    def save(self, folder: Path, optimizer_file: Path) -> None:
        """Write weights and tokenizer into `folder`, the optimizer's state into the file, or into
        a folder that stands for it.
        """


def optimizer_file(checkpoint: Path, model: str) -> Path:
    """Where a checkpoint keeps the optimizer of a model."""
    return checkpoint / f"{model}.optimizer.pt"


def existing(folder: Path) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), key=step_of)


def step_of(checkpoint: Path) -> int:
    """The finished steps of a complete checkpoint."""
    return int(checkpoint.name.removeprefix("step-"))


def newest(folder: Path) -> Path | None:
    """The newest complete checkpoint in `folder`, if any."""
    return existing(folder)[-1] if existing(folder) else None


def save(
    folder: Path, step: int, models: Mapping[str, Saved], state: Mapping[str, Any], keep: int
) -> Path:
    """Write the checkpoint after `step` finished steps; keep the `keep` newest.

    `folder` must belong to the caller alone (`RunFolder` locks it).
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".step-*"):  # of a process that was killed while it saved
        shutil.rmtree(leftover)
    final = folder / f"step-{step:06d}"
    temporary = folder / f".{final.name}"
    temporary.mkdir()
    try:
        for name, model in models.items():
            model.save(temporary / name, optimizer_file(temporary, name))
        whole = {"schema": SCHEMA, "step": step, **state}
        (temporary / "state.json").write_text(json.dumps(whole, indent=1))
        _sync(temporary)
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _fsync(folder)
    for old in existing(folder)[:-keep]:
        shutil.rmtree(old.rename(folder / f".{old.name}"))
    return final


def _sync(folder: Path) -> None:
    """Make the files durable before the rename makes them visible."""
    mode = (folder / "state.json").stat().st_mode
    for path in (folder, *folder.rglob("*")):
        if path.is_file():
            path.chmod(mode)  # safetensors writes files that only their owner may read
        _fsync(path)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The checkpoint's state. Raises `BadFile` if damaged, `UserError` for another schema."""
    path = checkpoint / "state.json"
    try:
        state = json.loads(path.read_text())
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read", fix="not a checkpoint") from None
    except ValueError as error:
        raise BadFile(path, f"not JSON ({error})", fix=f"remove {checkpoint}") from None
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        found = state.get("schema") if isinstance(state, dict) else None
        raise UserError(
            f"{path}: schema: {found!r} is not {SCHEMA}; resume with the mas-gym release that "
            "wrote it, or start a new run under another run.name"
        )
    return state
