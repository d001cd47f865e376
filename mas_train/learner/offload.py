"""The optimizer's state in CPU memory while it is not stepping: 12 of 16 bytes per parameter."""

from __future__ import annotations

import torch

from mas_train.learner.master_weights import MasterWeights


def move_state(
    optimizer: torch.optim.Optimizer, weights: MasterWeights, device: str | None = None
) -> None:
    """Move the moments and the float32 copies of weights to `device`, or back to the parameters.

    Copies between devices are exact. Step counts stay where AdamW keeps them.
    """
    homes = {}
    for master, weight in weights.copied:
        homes[id(master)] = weight.device
        master.data = master.data.to(device or weight.device)
    for parameter, state in optimizer.state.items():
        home = homes.get(id(parameter), parameter.device)
        for name, value in state.items():
            if value.ndim:
                state[name] = value.to(device or home)
