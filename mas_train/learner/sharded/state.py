"""A learner's resumable state on disk: one file, or a DCP folder that every rank writes a part of.

    <model>.optimizer.pt    of one process: torch.save
    <model>.optimizer/      of several: torch.distributed.checkpoint

Both hold the same (the optimizer's state, float32 masters, value head, counters), so either can be
read by any number of processes: `devices` may change between a run and its resumption. The weights
themselves are a Hugging Face folder beside it, whole, whatever the number of ranks.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from mas_train.learner.learner import Learner


def folder_of(file: Path) -> Path:
    """The DCP folder that stands for the file of one process."""
    return file.with_suffix("")


def stored(file: Path) -> Path:
    """The file of one process, or the folder of several if that is there."""
    return folder_of(file) if folder_of(file).is_dir() else file


def save_state(learner: Learner, file: Path) -> None:
    """Everything but the weights, into `file` or the folder that stands for it (collective).

    Raises `OSError` when it cannot be written.
    """
    if learner.shards is None:
        with file.open("wb") as opened:  # torch's own files do not say what failed
            torch.save(_resumable(learner), opened)
        return
    begin(learner.optimizer)
    _dcp("save", _resumable(learner), folder_of(file))


def load_state(learner: Learner, file: Path) -> None:
    """The inverse of `save_state`, by whatever number of processes it was saved (collective).

    Raises what `torch` does for a file that is missing, damaged or does not fit: one of `OSError`,
    `EOFError`, `KeyError`, `ValueError`, `RuntimeError`, `UnpicklingError`.
    """
    if stored(file) != file:
        begin(learner.optimizer)
        state = _resumable(learner)
        _dcp("load", state, folder_of(file))
    else:
        several = learner.shards is not None  # then no rank needs to read all of it
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=several)
        if learner.shards is not None:
            _cut(state, learner)
    learner.load_state_dict({**state, "model": learner.model.state_dict()})


def begin(optimizer: torch.optim.Optimizer) -> None:
    """Make the state that AdamW would make at its first step: a checkpoint needs places to fill."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not optimizer.state[parameter]:
                optimizer.state[parameter] = {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }


def _resumable(learner: Learner) -> dict[str, Any]:
    state = learner.state_dict()
    del state["model"]
    state["optimizer"] = {"state": state["optimizer"]["state"]}  # the settings are the run's
    return state


def _cut(state: dict[str, Any], learner: Learner) -> None:
    """Replace the whole tensors of a single process by this rank's parts."""
    from mas_train.learner.sharded.shards import cut_like

    for place, values in state["optimizer"]["state"].items():
        like = learner.parameters[place]
        for name, value in values.items():
            values[name] = cut_like(value, like) if value.ndim else value
    masters = learner.state_dict()["masters"]
    pairs = zip(state["masters"], masters, strict=True)
    state["masters"] = [cut_like(value, like) for value, like in pairs]
    if learner.value_head is not None:
        like_head: dict[str, Tensor] = learner.value_head.state_dict()
        head = state["value_head"]
        state["value_head"] = {name: cut_like(head[name], like_head[name]) for name in like_head}


def _dcp(what: Literal["save", "load"], state: dict[str, Any], folder: Path) -> None:
    """Call torch's function, whose errors name a rank and hide the cause."""
    import torch.distributed as dist
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.api import CheckpointException

    function, alone = getattr(checkpoint, what), not dist.is_initialized()
    try:
        with warnings.catch_warnings(action="ignore"):  # that it runs in a single process
            function(state, checkpoint_id=folder, no_dist=alone)
    except CheckpointException as error:
        cause: BaseException = next(failure[0] for failure in error.failures.values())
        if isinstance(cause, OSError):  # the disk is full, say
            raise cause from None
        raise RuntimeError(f"{type(cause).__name__}: {cause}") from error
