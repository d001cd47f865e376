"""Learning-rate schedules as a pure function of the optimizer step: nothing to save or restore."""

from __future__ import annotations

import math

from mas_envs.errors import UnknownName, UserError

SCHEDULES = ("constant", "linear", "cosine")


def lr_factor(step: int, schedule: str, warmup: int = 0, total: int | None = None) -> float:
    """The share of the learning rate at optimizer step 0, 1, …: linear warm-up, then the schedule.

    `linear` and `cosine` fall to 0 at `total` steps. Raises `UnknownName` for another schedule,
    `UserError` when `total` is missing.
    """
    if schedule not in SCHEDULES:
        raise UnknownName("schedule", schedule, SCHEDULES, "optimizer")
    if schedule != "constant" and total is None:
        raise UserError(f"optimizer.schedule {schedule!r} needs the total number of steps")
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if total is None or schedule == "constant":
        return 1.0
    done = min((step - warmup) / max(total - warmup, 1), 1.0)
    return 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
