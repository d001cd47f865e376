"""float32 copies of half-precision weights, which the optimizer moves in their place.

bfloat16 keeps 8 bits: adding less than 1/512 of a weight to it changes nothing, and at a learning
rate of 1e-6 nearly every update is that small. The copies add up what the weights cannot hold
(mixed-precision training, arXiv 1710.03740, section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

HALF = (torch.bfloat16, torch.float16)


class MasterWeights:
    """`masters` stand for `parameters` in the optimizer: float32 copies of the half-precision ones,
    the others themselves (then nothing is copied here).
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.masters = [Parameter(p.detach().float()) if p.dtype in HALF else p for p in parameters]
        pairs = zip(self.masters, parameters, strict=True)
        self.copied = [(master, p) for master, p in pairs if master is not p]

    def take_gradients(self) -> None:
        """Before the optimizer's step: hand it the gradients of the parameters."""
        for master, parameter in self.copied:
            master.grad = None if parameter.grad is None else parameter.grad.float()

    @torch.no_grad()
    def give_weights(self) -> None:
        """After the optimizer's step: round the new weights into the parameters."""
        for master, parameter in self.copied:
            master.grad = None
            parameter.copy_(master)

    def state(self) -> list[Tensor]:
        """The copies, which an exact resume needs (live tensors)."""
        return [master.detach() for master, _ in self.copied]

    @torch.no_grad()
    def load(self, state: Sequence[Tensor]) -> None:
        """The inverse of `state`. Raises `ValueError` or `RuntimeError` if it does not fit."""
        for (master, _), saved in zip(self.copied, state, strict=True):
            master.copy_(saved)
