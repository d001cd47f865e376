"""Log-probabilities of response tokens under a model, at the temperature they were sampled with.

The output embedding is applied to the K places that predict a response token, a chunk of them at a
time: of a vocabulary of V no more than a bounded part of [K, V] exists, in the forward or in the
backward.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mas_envs.errors import UserError
from mas_train.experience.rows import Rows
from mas_train.learner.output_head import score
from mas_train.learner.packing import Pack, pack_rows, packed_attention


class TokenLogProbs(NamedTuple):
    """Of the K response tokens of a pack: `log_probs` [K] in nats, with gradient.

    `entropy` [K] of the whole distribution, with gradient where it was asked for; `hidden` [K, d],
    if asked for, the last hidden states that predict the tokens, with gradient.
    """

    log_probs: Tensor
    entropy: Tensor
    hidden: Tensor | None = None


def token_log_probs(
    model: Any,
    pack: Pack,
    temperature: Tensor,
    *,
    entropy_gradient: bool = False,
    hidden: bool = False,
) -> TokenLogProbs:
    """Of the K response tokens of a pack; `temperature` [K] divides their logits.

    Everything is in float32 at least. Raises `UserError` for a model that does something to its
    logits after the output embedding (a soft cap, a scale).
    """
    head = model.get_output_embeddings()
    returned = torch.empty(0)

    def scored(states: Tensor) -> Tensor:  # [1, K, d] → [1, K, 2], with `hidden` [1, K, 2 + d]
        nonlocal returned
        found = score(head, apply, states[0], pack.targets, temperature, entropy_gradient)
        columns = [torch.stack(found, -1)]
        if hidden:
            columns.append(states[0].to(columns[0].dtype))
        returned = torch.cat(columns, -1)[None]
        return returned

    # Inside the model's own forward, where hooks (FSDP) have the head's weights in place.
    with packed_attention(model), _head_replaced(head, scored) as apply:
        output = model(
            input_ids=pack.input_ids,
            position_ids=pack.positions,
            logits_to_keep=pack.predictors,
            use_cache=False,
            blocks=pack.blocks,
        )
    columns = _untouched(model, output.logits, returned)[0]
    log_probs, entropy = columns[:, 0], columns[:, 1]
    return TokenLogProbs(
        log_probs,
        entropy if entropy_gradient else entropy.detach(),
        columns[:, 2:] if hidden else None,
    )


@contextlib.contextmanager
def _head_replaced(
    head: torch.nn.Module, forward: Callable[[Tensor], Tensor]
) -> Iterator[Callable[[Tensor], Tensor]]:
    """Within this block the head's forward is `forward`; gives its own."""
    own, patched = head.forward, "forward" in vars(head)
    head.forward = forward
    try:
        yield own
    finally:
        if patched:
            head.forward = own
        else:
            del head.forward


def _untouched(model: Any, logits: Tensor, returned: Tensor) -> Tensor:
    """What the head returned, if the model passes it on as its logits."""
    same = logits is returned or (
        logits.shape == returned.shape
        and torch.allclose(logits.to(returned.dtype), returned, equal_nan=True)
    )
    if same:
        return logits
    raise UserError(
        f"{type(model).__name__} changes its logits after the head; it cannot be trained here"
    )


@torch.no_grad()
def row_log_probs(model: Any, rows: Rows, budget: int = 2048) -> list[NDArray[np.floating[Any]]]:
    """The learner's log-probs of every response, in row order: a list of N arrays [T]."""
    result: list[Any] = [np.zeros(0)] * len(rows)
    device = next(model.parameters()).device
    for pack in pack_rows(rows, budget, device):
        temperature = torch.as_tensor(rows.temperature[pack.row], device=device)
        values = token_log_probs(model, pack, temperature).log_probs.cpu().numpy()
        ends = np.cumsum([len(rows.ids[i]) for i in pack.rows])
        for i, part in zip(pack.rows, np.split(values, ends[:-1]), strict=True):
            result[i] = part
    return result
