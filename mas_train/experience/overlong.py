"""What a turn costs that comes close to its length limit (soft overlong punishment, DAPO)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mas_envs.errors import UserError


def overlong_penalty(
    lengths: ArrayLike, max_tokens: ArrayLike, buffer: int, penalty: float = 1.0
) -> NDArray[np.float64]:
    """What to add to the reward of each row [N], between -`penalty` and 0 (arXiv 2503.14476).

    `lengths` [N] response tokens; `max_tokens` L the limit, a number or one per row; `buffer` L_c
    tokens before it. 0 up to L - L_c, then falling linearly to -`penalty` at L and beyond. A
    buffer of 0 costs nothing. (The other remedy, `rollout.overlong.mask`, keeps rows that were cut
    off at the limit out of the gradient; their rewards stay in the statistics. It goes by why the
    turn ended, not by its length: a turn may end by itself at its last permitted token.)

    Raises `UserError` for a buffer below 0 or above the limit: every turn would pay.
    """
    limit = np.asarray(max_tokens, np.float64)
    if buffer < 0 or (limit < buffer).any():
        raise UserError(
            f"rollout.overlong.buffer {buffer} must lie between 0 and the limit of "
            f"{int(limit.min())} tokens"
        )
    over = np.asarray(lengths, np.float64) - (limit - buffer)
    return -penalty * np.clip(over / max(buffer, 1), 0.0, 1.0 if buffer else 0.0)
