"""Drawing the next token of many rows at once, each from its own random stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from mas_envs.episodes.schema import Sampling


def uniforms(seed: int, count: int) -> NDArray[np.float64]:
    """[count] numbers in [0, 1): the random stream of one row, the same on every platform.

    Philox is keyed, so neighbouring seeds are independent. Built from its raw 64-bit output, which
    numpy guarantees across releases (it does not for `Generator.random`).
    """
    raw = np.random.Philox(key=seed % 2**64).random_raw(count)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(
    logits: torch.Tensor, samplings: Sequence[Sampling], draws: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Next tokens [n] and their log-probs [n] from logits [n, V] by inverting the row's CDF.

    Log-probs are those of the policy that really sampled: after temperature, top-k and top-p.
    Greedy rows (temperature 0) have log-prob 0: that policy puts all its mass on one token.
    """
    device = logits.device
    temperature = torch.tensor(
        [s.temperature for s in samplings], dtype=logits.dtype, device=device
    )
    greedy = temperature == 0
    log_probs = torch.log_softmax(logits / temperature.masked_fill(greedy, 1.0)[:, None], dim=-1)
    limited = [i for i, s in enumerate(samplings) if s.top_k or s.top_p < 1]
    if limited:
        log_probs[limited] = restrict(log_probs[limited], [samplings[i] for i in limited])

    cdf = log_probs.double().exp().cumsum(dim=-1)
    total = cdf[:, -1]
    target = torch.tensor(draws, dtype=torch.float64, device=device) * total
    # Rounding must not push the target onto `total`, where no token (or an excluded one) lies.
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    ids = torch.searchsorted(cdf, target[:, None], right=True)[:, 0]
    chosen = log_probs.gather(1, ids.clamp(max=logits.shape[1] - 1)[:, None])[:, 0]
    if any(s.temperature == 0 for s in samplings):
        ids = torch.where(greedy, logits.argmax(dim=-1), ids)
        chosen = chosen.masked_fill(greedy, 0.0)
    return ids, chosen


def restrict(log_probs: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    """Renormalised log-probs [n, V] with -inf outside the top k and outside the nucleus.

    The nucleus (Holtzman et al. 2020, arXiv 1904.09751, eq. 2) is the smallest set of most probable
    tokens whose mass, after top-k, reaches top_p. Of equal tokens the one of lower id is kept.
    """
    size, device = log_probs.shape[1], log_probs.device
    top_k = torch.tensor([s.top_k or size for s in samplings], device=device)
    top_p = torch.tensor([s.top_p for s in samplings], dtype=log_probs.dtype, device=device)
    ordered, index = log_probs.sort(dim=-1, descending=True, stable=True)
    outside = torch.arange(size, device=device) >= top_k[:, None]
    probs = ordered.masked_fill(outside, -torch.inf).softmax(dim=-1)
    outside |= probs.cumsum(dim=-1) - probs >= top_p[:, None]
    kept = torch.log_softmax(ordered.masked_fill(outside, -torch.inf), dim=-1)
    return torch.empty_like(kept).scatter_(1, index, kept)
