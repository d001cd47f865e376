"""One rank's part of a model: 1/N of the weights, and 1/N of the packs of every batch.

FSDP2 (`fully_shard`) keeps each parameter, its gradient and its optimizer state cut over the ranks,
gathers one decoder layer at a time to compute with it, and sums the gradients. Since the weight of
every token is global (`mas_train.learner.weights`), that sum is the gradient of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from mas_train.experience.rows import Rows
from mas_train.learner.master_weights import HALF
from mas_train.learner.packing import balanced
from mas_train.learner.update_metrics import UpdateMetrics

T = TypeVar("T")


class Shards:
    """This rank's place among those of the default process group, and the model they share.

    Half-precision weights are kept, reduced and optimized in float32 and computed with in their
    own type (`dtype`): what `MasterWeights` does for one process. A `frozen` model stays as it is
    and is only looked at. Everything here that computes
    is collective: each rank calls it in the same order with the same rows.
    """

    def __init__(
        self, model: nn.Module, value_head: nn.Module | None = None, *, frozen: bool = False
    ) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        self._mesh = init_device_mesh(kind, (self.count,))
        self._wide = not frozen
        trained = [p for p in model.parameters() if p.requires_grad]
        self._half = [p.dtype in HALF for p in trained]
        self.dtype = trained[0].dtype
        self._root = _Root(model, value_head)
        for layer in decoder_layers(model):
            self._shard(layer)
        if value_head is not None:
            self._shard(value_head)
        self._shard(self._root)
        self._masters = [p for p in model.parameters() if p.requires_grad]

    def _shard(self, module: nn.Module) -> None:
        half = next((p.dtype for p in module.parameters() if p.dtype in HALF), None)
        policy = MixedPrecisionPolicy(half, torch.float32 if half else None)
        for parameter in module.parameters() if self._wide else ():
            if parameter.dtype in HALF:
                parameter.data = parameter.data.float()
        # The root too gives its weights back after a forward: one without a backward would
        # otherwise leave them gathered, and stale once the weights change.
        fully_shard(module, mesh=self._mesh, mp_policy=policy, reshard_after_forward=True)
        assert isinstance(module, FSDPModule)
        module.set_gradient_divide_factor(1.0)  # the sum over ranks, not the mean
        module.set_force_sum_reduction_for_comms(True)  # gloo has no other

    def run(self, compute: Callable[[], T]) -> T:
        """What `compute` makes of the model; within it the model's weights are whole.

        It is the forward of an outer module, so it may use any part of the model (the output
        embedding by itself, say), but must pass through the layers exactly once.
        """
        result: T = self._root(compute)
        return result

    def packs(self, rows: Rows, budget: int) -> Iterator[tuple[NDArray[np.int64], bool]]:
        """Rows [n] of each pack of this rank, and whether they count.

        Every row counts on one rank and in one pack. All ranks have equally many packs, or they
        would wait for each other for ever: the rest are the shortest row, to be given no weight.
        """
        trained = np.array([len(ids) for ids in rows.ids], np.int64)
        prompts = np.array([len(ids) for ids in rows.prompt_ids], np.int64)
        lengths = np.where(trained > 0, prompts + trained, 0)
        if not lengths.any():
            return
        shortest = np.flatnonzero(lengths == lengths[lengths > 0].min())[:1]
        for pack in balanced(lengths, self.count, budget)[self.rank]:
            yield (pack, True) if len(pack) else (shortest, False)

    def per_row(self, rows: Rows, budget: int, look: Callable[[Rows], list[Any]]) -> list[Any]:
        """`look` of all rows, one array [T] each: every rank looks at its packs."""
        found: dict[int, Any] = {}
        for index, counts in self.packs(rows, budget):
            values = self.run(partial(look, rows.take(index)))
            if counts:
                found.update(zip(index.tolist(), values, strict=True))
        everywhere: dict[int, Any] = {}
        for part in self._gather(found):
            everywhere.update(part)
        return [everywhere.get(i, np.zeros(0)) for i in range(len(rows))]

    def add_up(self, metrics: UpdateMetrics) -> None:
        """Make the token sums of `metrics` those of all ranks; the norms are so already."""
        parts = self._gather((metrics.loss, metrics.tokens, dict(metrics.sums)))
        metrics.sums.clear()
        metrics.loss = sum(loss for loss, _, _ in parts)
        metrics.tokens = sum(tokens for _, tokens, _ in parts)
        for _, _, sums in parts:
            for name, value in sums.items():
                metrics.sums[name] += value

    def _gather(self, value: Any) -> list[Any]:
        parts: list[Any] = [None] * self.count
        dist.all_gather_object(parts, value)
        return parts

    def state(self) -> list[Tensor]:
        """The float32 weights of a half-precision model; of another none, as `MasterWeights`."""
        pairs = zip(self._masters, self._half, strict=True)
        return [parameter.detach() for parameter, half in pairs if half]

    def load(self, saved: Sequence[Tensor]) -> None:
        """The inverse of `state`. Raises `ValueError` or `RuntimeError` if it does not fit."""
        for master, value in zip(self.state(), saved, strict=True):
            master.copy_(value)

    def named_weights(self, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """The whole weights by `state_dict` name in the type they were loaded in, one at a time.

        Of the names of a tied weight only the first comes.
        """
        seen: set[int] = set()
        for name, tensor in model.state_dict(keep_vars=True).items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, whole(tensor.detach().to(self.dtype))


class _Root(nn.Module):
    """The outermost module: its forward is whatever is to be computed with gathered weights."""

    def __init__(self, model: nn.Module, value_head: nn.Module | None) -> None:
        super().__init__()
        self.model, self.value_head = model, value_head

    def forward(self, compute: Callable[[], T]) -> T:
        return compute()


def decoder_layers(model: Any) -> list[nn.Module]:
    """The modules that the model's author says must not be split: its decoder layers."""
    kinds = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in kinds]


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or if it is cut over the ranks all of it (then collective)."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def cut_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This rank's part of a whole tensor, cut as `like` is; the tensor itself if that is whole."""
    if not isinstance(like, DTensor):
        return tensor
    tensor = tensor.to(like.device)
    part = distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
    return part.clone()  # not a view that keeps the whole alive
