"""Packing rows end to end into sequences without padding, and the attention that keeps them apart.

A pack is one sequence of at most `budget` tokens holding whole rows (a longer row is its own
pack). Positions restart at every row, and a token attends only within its row. Every linear layer
sees real tokens only. Where the attention kernel takes no packs (all but half precision on CUDA)
it works on rectangles of rows of similar length, which it alone pads.
"""

from mas_train.learner.packing.forward import packed_attention
from mas_train.learner.packing.pack import Blocks, Pack, Rectangle, pack_rows
from mas_train.learner.packing.plan import balanced, crossover, plan

__all__ = [
    "Blocks",
    "Pack",
    "Rectangle",
    "balanced",
    "crossover",
    "pack_rows",
    "packed_attention",
    "plan",
]
