"""Checkpoints: one folder per step, complete or not there at all.

    checkpoints/step-000020/
        state.json             schema, step, position in the stored episodes, who plays what, and
                               size and checksum (CRC-32) of every file
        <model>/               a Hugging Face folder (weights, tokenizer): loads anywhere
        <model>.optimizer.pt   optimizer and schedule; of a model on several processes a folder
                               <model>.optimizer (see `mas_train.learner.sharded.state`)

A checkpoint is written under a temporary name (`.step-000020`) and renamed when whole; it is
renamed back before it is removed. So whatever is named `step-…` is complete, and what a killed
process left under another name goes at the next save. Whether a disk gave back what was written is
another question: `verify` answers it before anything is loaded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
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
        whole = {"schema": SCHEMA, "step": step, **state, "files": _checksums(temporary)}
        whole["checksum"] = _own_checksum(whole)
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


def _checksums(folder: Path) -> dict[str, tuple[int, int]]:
    """(bytes, CRC-32) of every file below `folder`, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor() as pool:  # CRC-32 runs at 1 to 3 GB/s, and outside Python's lock
        found = list(pool.map(_checksum, files))
    return {
        path.relative_to(folder).as_posix(): one for path, one in zip(files, found, strict=True)
    }


def _checksum(path: Path) -> tuple[int, int]:
    size = crc = 0
    with path.open("rb") as file:
        while part := file.read(2**22):
            size, crc = size + len(part), zlib.crc32(part, crc)
    return size, crc


def _is_complete(state: Mapping[str, Any]) -> bool:
    """Whether a state of this schema holds what going on needs."""
    try:
        (shard, byte), files = state["episodes"], state.get("files", {})
        pairs = [number for size, crc in files.values() for number in (size, crc)]
        numbers = [state["step"], state.get("drawn", 0), shard, byte, *pairs]
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    counts = all(type(number) is int and number >= 0 for number in numbers)
    return counts and isinstance(state.get("baselines", {}), dict)


def _own_checksum(state: Mapping[str, Any]) -> int:
    rest = {key: value for key, value in state.items() if key != "checksum"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def verify(checkpoint: Path) -> None:
    """Raises `BadFile` that names a file which is missing or not what was saved, and says what to
    do. A checkpoint of an earlier release has no checksums and is taken as it is.
    """
    for name, (size, crc) in read_state(checkpoint).get("files", {}).items():
        path = checkpoint / name
        try:
            found = _checksum(path)
        except OSError as error:
            raise BadFile(
                path, error.strerror or "cannot be read", fix=_instead(checkpoint)
            ) from None
        if found[0] != size:
            raise BadFile(path, f"has {found[0]:,} bytes, not the {size:,} saved",
                          fix=_instead(checkpoint))  # fmt: skip
        if found[1] != crc:
            raise BadFile(path, "is damaged: its checksum is not that of what was saved",
                          fix=_instead(checkpoint))  # fmt: skip


def _instead(checkpoint: Path) -> str:
    """What to do about a checkpoint that is no good."""
    here = _NAME.fullmatch(checkpoint.name)
    if older := [
        one for one in existing(checkpoint.parent) if here and step_of(one) < int(here[1])
    ]:
        return f"remove {checkpoint}, and mas-train resume goes on from {older[-1].name}"
    return "bring back a copy of it, or start a new run under another run.name"


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The checkpoint's state. Raises `BadFile` if damaged, `UserError` for another schema."""
    path = checkpoint / "state.json"
    try:
        state = json.loads(path.read_text())
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise BadFile(path, reason, fix=_instead(checkpoint)) from None
    except ValueError as error:
        raise BadFile(path, f"not JSON ({error})", fix=_instead(checkpoint)) from None
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        found = state.get("schema") if isinstance(state, dict) else None
        raise UserError(
            f"{path}: schema: {found!r} is not {SCHEMA}; resume with the mas-gym release that "
            "wrote it, or start a new run under another run.name"
        )
    if not _is_complete(state):
        raise BadFile(path, "does not say where the run stood", fix=_instead(checkpoint))
    checked = "files" in state or "checksum" in state  # an earlier release wrote neither
    if checked and state.get("checksum") != _own_checksum(state):
        raise BadFile(path, "is damaged: its checksum is not that of what was saved",
                      fix=_instead(checkpoint))  # fmt: skip
    return state
