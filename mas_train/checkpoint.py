"""Checkpoints: one folder per step, complete or not there at all.

    checkpoints/step-000020/
        state.json             schema, step, position in the stored episodes, who plays what
        <model>/               a Hugging Face folder (weights, tokenizer): loads anywhere
        <model>.optimizer.pt   optimizer and schedule

A checkpoint is written under a temporary name and renamed when whole.
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
        """Write weights and tokenizer into `folder`, the optimizer's state into the file."""


def optimizer_file(checkpoint: Path, model: str) -> Path:
    """Where a checkpoint keeps the optimizer of a model."""
    return checkpoint / f"{model}.optimizer.pt"


def existing(folder: Path) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.name[5:]))


def newest(folder: Path) -> Path | None:
    """The newest complete checkpoint in `folder`, if any."""
    return existing(folder)[-1] if existing(folder) else None


def save(
    folder: Path, step: int, models: Mapping[str, Saved], state: Mapping[str, Any], keep: int
) -> Path:
    """Write the checkpoint after `step` finished steps; keep the `keep` newest."""
    final = folder / f"step-{step:06d}"
    temporary = folder / f".{final.name}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        for name, model in models.items():
            model.save(temporary / name, optimizer_file(temporary, name))
        whole = {"schema": SCHEMA, "step": step, **state}
        (temporary / "state.json").write_text(json.dumps(whole, indent=1))
        _sync(temporary)
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for old in existing(folder)[:-keep]:
        shutil.rmtree(old)
    return final


def _sync(folder: Path) -> None:
    """Make the files durable before the rename makes them visible."""
    mode = (folder / "state.json").stat().st_mode
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)  # safetensors writes files that only their owner may read
            with path.open("rb") as file:
                os.fsync(file.fileno())


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
