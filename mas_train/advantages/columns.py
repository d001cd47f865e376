"""What every estimator checks about the columns it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mas_envs.errors import UserError
from mas_train.advantages.groups import Floats, Mask


def checked_rewards(rewards: Any, known: Any) -> tuple[Floats, Mask]:
    """Rewards [N] (0 where unknown) and the mask of known rows [N].

    Raises `UserError` for another shape, no numbers, or a known reward that is not finite.
    """
    if rewards is None:
        raise UserError("rewards must be numbers of shape [N], not None")
    values = numbers("rewards", rewards)
    seen = np.ones(values.shape, dtype=np.bool_) if known is None else np.array(known, np.bool_)
    if values.ndim != 1 or seen.shape != values.shape:
        raise UserError(f"rewards {values.shape} and known {seen.shape} must both have shape [N]")
    finite = np.isfinite(values)
    if not finite.all():
        bad = seen & ~finite
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise UserError(
                f"the reward of row {row} is {values[row]}; mark rows without a reward known=False"
            )
    return (values if seen.all() else np.where(seen, values, 0.0)), seen


def numbers(name: str, values: Any) -> Floats:
    """`values` as a new array of float64. Raises `UserError` where they are no numbers."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be an array of numbers: {error}") from None


def checked_labels(name: str, labels: Any, rows: int, of: str = "rewards") -> NDArray[Any]:
    """`labels` as an array [N], N = `rows` of the column `of`.

    Raises `UserError` for another shape, or None.
    """
    if labels is None:
        raise UserError(f"{name!r} must be one label per row, not None")
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise UserError(f"{name!r} must be one label per row: {error}") from None
    if array.ndim != 1:
        raise UserError(f"{name!r} must have shape [N], not {array.shape}")
    if len(array) != rows:
        raise UserError(f"{name!r} has {len(array)} rows, the {of} have {rows}")
    return array


def checked_lengths(lengths: Any, rows: int, of: str = "rewards") -> NDArray[np.int64]:
    """Response tokens of each row [N], N = `rows` of the column `of`.

    Raises `UserError` where they are no such numbers.
    """
    array = checked_labels("lengths", lengths, rows, of)
    if array.size and (array.dtype.kind not in "iu" or int(array.min()) < 0):
        raise UserError("'lengths' must be numbers of tokens: integers that are not negative")
    return array.astype(np.int64)


def checked_tokens(name: str, values: Any, lengths: NDArray[np.int64], seen: Mask) -> Floats:
    """A number per response token [K] of rows with `lengths` [N], as a new array.

    Raises `UserError` for another shape, or where one of a row that is `seen` [N] is not finite.
    """
    array = numbers(name, values)
    tokens = int(lengths.sum())
    if array.shape != (tokens,):
        raise UserError(f"{name!r} has shape {array.shape}, but the lengths add up to {tokens}")
    bad = np.repeat(seen, lengths) & ~np.isfinite(array)
    if bad.any():
        token = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(np.cumsum(lengths), token, side="right"))
        raise UserError(f"{name!r} of row {row} has {array[token]}, which is not a finite number")
    return array
