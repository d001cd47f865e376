"""Log-probabilities of response tokens under a model, at the temperature they were sampled with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mas_train.packing import Pack, pack_rows, packed_attention
from mas_train.rows import Rows


class TokenLogProbs(NamedTuple):
    """`log_probs` [K] in nats, with gradient; `entropy` [K] of the whole distribution, with one if
    asked for; `hidden` [K, d]: the last hidden states that predict each token, if asked for.
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

    Logits exist only at the K places that predict a response token, [K, V], in float32 at least.
    """
    with packed_attention(model):
        states = model.base_model(
            input_ids=pack.input_ids,
            position_ids=pack.positions,
            use_cache=False,
            blocks=pack.blocks,
        ).last_hidden_state[0, pack.predictors]
    logits = model.get_output_embeddings()(states)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    logits = logits / temperature.to(logits.dtype)[:, None]
    normaliser = logits.logsumexp(-1)
    log_probs = logits.gather(-1, pack.targets[:, None])[:, 0] - normaliser
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        probs = (logits - normaliser[:, None]).exp()
        entropy = normaliser - (probs * logits).sum(-1)
    return TokenLogProbs(log_probs, entropy, states if hidden else None)


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
