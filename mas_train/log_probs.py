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
    """`log_probs` [K] in nats, with gradient; `entropy` [K] of the whole distribution, without."""

    log_probs: Tensor
    entropy: Tensor


def token_log_probs(model: Any, pack: Pack, temperature: Tensor) -> TokenLogProbs:
    """Of the K response tokens of a pack; `temperature` [K] divides their logits.

    Logits exist only at the K places that predict a response token, [K, V], in float32 at least.
    """
    with packed_attention(model):
        output = model(
            input_ids=pack.input_ids,
            position_ids=pack.positions,
            logits_to_keep=pack.predictors,
            use_cache=False,
            blocks=pack.blocks,
        )
    logits = output.logits[0]
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    logits = logits / temperature.to(logits.dtype)[:, None]
    normaliser = logits.logsumexp(-1)
    log_probs = logits.gather(-1, pack.targets[:, None])[:, 0] - normaliser
    with torch.no_grad():
        probs = (logits - normaliser[:, None]).exp()
        entropy = normaliser - (probs * logits).sum(-1)
    return TokenLogProbs(log_probs, entropy)


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
