"""How many CPU threads a pass through a model is worth."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

WORTH_THREADS = 50_000_000
"""Tokens × parameters of a pass above which more threads than one save time. Below, each of its
hundred small operations wakes the others for less work than that costs."""


@contextlib.contextmanager
def threads_for(tokens: int, parameters: int) -> Iterator[None]:
    """One thread for a small pass over `tokens`, then as many as before."""
    most = torch.get_num_threads()
    if most == 1 or tokens * parameters > WORTH_THREADS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(most)
