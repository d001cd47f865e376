"""What every estimator checks about the columns it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mas_envs.errors import UserError
from mas_train.advantages.groups import Floats, Mask

LARGEST = 1e150
"""Of rewards: the squares of larger ones are not finite."""


def checked_rewards(rewards: Any, known: Any) -> tuple[Floats, Mask]:
    """Rewards [N] (0 where unknown) and the mask of known rows [N].

    Raises `UserError` for another shape, no numbers, or a known reward that is not finite or
    beyond `LARGEST`.
    """
    if rewards is None:
        raise UserError("rewards must be numbers of shape [N], not None")
    values = numbers("rewards", rewards)
    seen = checked_mask(known, values.shape)
    if values.ndim != 1 or seen.shape != values.shape:
        raise UserError(f"rewards {values.shape} and known {seen.shape} must both have shape [N]")
    fine = np.abs(values) <= LARGEST
    if not fine.all():
        bad = seen & ~fine
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            hint = "mark rows without a reward known=False"
            if np.isfinite(values[row]):
                hint = f"no more than {LARGEST:g} either way"
            raise UserError(f"the reward of row {row} is {values[row]}; {hint}")
    return (values if seen.all() else np.where(seen, values, 0.0)), seen


def checked_mask(known: Any, shape: tuple[int, ...]) -> Mask:
    """`known` as booleans, all True where it is None. Raises `UserError` for anything but 0 and 1:
    the text "False" and NaN would count as True.
    """
    if known is None:
        return np.ones(shape, np.bool_)
    given = np.asarray(known)
    if given.dtype.kind == "b":
        return given.copy()
    mask = given == 1
    if given.size and not (mask | (given == 0)).all():
        raise UserError("'known' must be True or False for each row")
    return np.asarray(mask, np.bool_)


def numbers(name: str, values: Any) -> Floats:
    """`values` as a new array of float64. Raises `UserError` where they are no numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "USMmc":
            raise TypeError(f"{array.dtype} is none")
        return np.array(array, dtype=np.float64)
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
    finite = np.isfinite(array)
    if not finite.all() and (bad := np.repeat(seen, lengths) & ~finite).any():
        token = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(np.cumsum(lengths), token, side="right"))
        raise UserError(f"{name!r} of row {row} has {array[token]}, which is not a finite number")
    return array
