"""Equal observations: which rows of an agent were asked exactly the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mas_envs.errors import UserError
from mas_train.advantages.columns import checked_labels


def anchors(prompt_ids: Sequence[Any], agent: Any) -> NDArray[np.int64]:
    """Labels [N]: equal for two rows of one agent whose prompts have the same token ids.

    `prompt_ids` holds N arrays of ids (any length, any integer type), `agent` [N] the role of each
    row. These are the anchor states of GiGPO (arXiv 2505.10978): a turn is compared with others
    that saw the same. Prompts are compared whole, so there are no collisions. A row without ids
    (a policy without tokens) equals no other.

    Labels count from 0 in the order of first appearance. Raises `UserError` for another length of
    `agent`, or ids that are no integers.
    """
    seen: dict[tuple[Any, bytes], int] = {}
    labels = np.empty(len(prompt_ids), np.int64)
    agents = checked_labels("agent", agent, len(labels), "prompt ids").tolist()
    for row, (who, ids) in enumerate(zip(agents, prompt_ids, strict=True)):
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise UserError(f"the prompt ids of row {row} must be an array of integers")
        key = (who, array.astype(np.int64, copy=False).tobytes()) if array.size else (row, b"")
        labels[row] = seen.setdefault(key, len(seen))
    return labels
