"""The critic of preset `ppo`: one linear layer on the hidden states of the policy itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mas_train.experience.rows import Rows
from mas_train.learner.log_probs import token_log_probs
from mas_train.learner.packing import pack_rows


def new_value_head(model: Any) -> nn.Linear:
    """d → 1, zero at first, so that the first advantages are the returns themselves."""
    parameter = next(model.parameters())
    wide = torch.float64 if parameter.dtype == torch.float64 else torch.float32
    head = nn.Linear(model.config.hidden_size, 1, device=parameter.device, dtype=wide)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def value_of(head: nn.Module, hidden: Tensor | None) -> Tensor:
    """V [K] of the hidden states [K, d] that predict each token: the value before it is said."""
    assert hidden is not None
    values: Tensor = head(hidden.to(next(head.parameters()).dtype))[:, 0]
    return values


@torch.no_grad()
def row_values(model: Any, head: nn.Module, rows: Rows, budget: int) -> list[NDArray[Any]]:
    """The value before each response token of every row: a list of N arrays [T]."""
    result: list[Any] = [np.zeros(len(ids)) for ids in rows.ids]
    device = next(model.parameters()).device
    for pack in pack_rows(rows, budget, device):
        temperature = torch.as_tensor(rows.temperature[pack.row], device=device)
        found = token_log_probs(model, pack, temperature, hidden=True)
        values = value_of(head, found.hidden).cpu().numpy().astype(np.float64)
        ends = np.cumsum([len(rows.ids[i]) for i in pack.rows])
        for i, part in zip(pack.rows, np.split(values, ends[:-1]), strict=True):
            result[i] = part
    return result
