"""The loss of a value head."""

from __future__ import annotations

from torch import Tensor


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, clip: float | None = 0.2
) -> Tensor:
    """(V - R)² / 2 per token [K]; with `clip` the larger of it and the same of the clipped value.

    V is clipped to within `clip` of `old_values`, the head's answer at the start of the batch, as
    in the reference implementation of PPO (openai/baselines, ppo2): a step that would carry V
    further than that towards the return is not rewarded. Only `values` carries a gradient.
    """
    error = (values - returns).square()
    if clip is not None:
        near = old_values + (values - old_values).clamp(-clip, clip)
        error = error.maximum((near - returns).square())
    return error / 2
