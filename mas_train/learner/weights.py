"""Loss aggregation as one weight per token, computed once over the whole optimizer batch.

The loss of a batch is the sum over its tokens of weight x loss. Since the weights are known before
the first micro-batch, no packing, micro-batch size, order or sharding can change the gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mas_envs.errors import UnknownName, UserError

AGGREGATIONS = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant")


def token_weights(
    lengths: Any,
    aggregation: str = "token_mean",
    *,
    max_tokens: int | None = None,
    row_weights: Any = 1.0,
) -> NDArray[np.float64]:
    """The weight of each token of row i, [B]; within a row all tokens weigh the same.

    `lengths` [B] are the trained tokens of each row of the optimizer batch. With N their sum and
    B the number of rows that have any:

    - `token_mean` 1/N: long rows count more (DAPO, arXiv 2503.14476);
    - `seq_mean_token_mean` 1/(B T_i): every row counts the same (GRPO, arXiv 2402.03300);
    - `seq_mean_token_sum` 1/B: unnormalised by length;
    - `constant` 1/(B L): L = `max_tokens`, the generation limit (Dr. GRPO, arXiv 2503.20783).

    `row_weights` ([B] or a number) multiply the result: an agent's loss weight. They do not enter
    the denominators, so a weight of 0.5 halves that agent's gradient and leaves the others alone.
    """
    tokens = np.asarray(lengths, np.float64)
    total, rows = max(float(tokens.sum()), 1.0), max(int((tokens > 0).sum()), 1)
    if aggregation == "token_mean":
        weights = np.full(tokens.shape, 1 / total)
    elif aggregation == "seq_mean_token_mean":
        weights = 1 / (rows * np.maximum(tokens, 1.0))
    elif aggregation == "seq_mean_token_sum":
        weights = np.full(tokens.shape, 1 / rows)
    elif aggregation == "constant":
        if not max_tokens or max_tokens <= 0:
            raise UserError("loss aggregation 'constant' divides by max_tokens, which is not set")
        weights = np.full(tokens.shape, 1 / (rows * max_tokens))
    else:
        raise UnknownName("loss aggregation", aggregation, AGGREGATIONS)
    return weights * np.asarray(row_weights, np.float64)
