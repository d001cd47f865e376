"""The learner that a model's settings ask for: whole, an adapter on a base, or over processes.

All three learn by `update`, look by `log_probs`, `row_values` and `reference_log_probs`, give away
by `named_weights` and `save_weights`, and go on by `save_state` and `load_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mas_train.config import LoraConfig, ModelConfig, OptimizerConfig
from mas_train.engines.hf_model import load_pretrained
from mas_train.engines.load import local_device
from mas_train.experience.rows import Rows
from mas_train.learner.learner import Learner
from mas_train.learner.log_probs import row_log_probs
from mas_train.learner.lora import (
    Bases,
    adapted_model,
    adapter_off,
    adapter_weights,
    load_adapter,
    merged_weights,
    save_adapter,
)
from mas_train.learner.sharded.learner import ShardedLearner, load_model, load_tokenizer
from mas_train.learner.sharded.state import load_state, save_state


class WholeLearner(Learner):
    """All weights of one model, in this process."""

    _reference: PreTrainedModel | None = None

    def named_weights(self) -> Iterable[tuple[str, Tensor]]:
        """All weights by `state_dict` name (live tensors)."""
        weights: Iterable[tuple[str, Tensor]] = self.model.state_dict().items()
        return weights

    def reference_log_probs(
        self, make_model: Callable[[], PreTrainedModel], rows: Rows
    ) -> list[Any]:
        """As `log_probs`, of another model, which is made at the first call."""
        if self._reference is None:
            device = self.parameters[0].device
            self._reference = torch.nn.Module.to(make_model(), device)
        return row_log_probs(self._reference, rows, self.token_budget)

    def save_weights(self, folder: Path) -> None:
        """A Hugging Face folder of the weights."""
        self.model.save_pretrained(folder)

    def save_state(self, file: Path) -> None:
        """All the rest; see `state.save_state`."""
        save_state(self, file)

    def load_state(self, file: Path) -> None:
        """See `state.load_state`."""
        load_state(self, file)

    def close(self) -> None:
        """Nothing is left open."""


class AdapterLearner(WholeLearner):
    """An adapter of one model; the base below it may be shared, and stays as it is."""

    def __init__(
        self,
        model: PreTrainedModel,
        optimizer: OptimizerConfig,
        *,
        lora: LoraConfig,
        **options: Any,
    ) -> None:
        super().__init__(model, optimizer, **options)
        self.lora = lora

    def named_weights(self) -> Iterable[tuple[str, Tensor]]:
        """The weights of the base with the adapter added to them."""
        return merged_weights(self.model.state_dict().items(), self.lora)

    def adapter_weights(self) -> dict[str, Tensor]:
        """The adapter's own, for an engine that can add them itself."""
        return adapter_weights(self.model.state_dict().items())

    def reference_log_probs(
        self, make_model: Callable[[], PreTrainedModel], rows: Rows
    ) -> list[Any]:
        """Without the adapter: what it started from, with no second model."""
        with adapter_off(self.model):
            return self.log_probs(rows)

    def save_weights(self, folder: Path) -> None:
        """The adapter alone, as PEFT does."""
        save_adapter(self.model, folder.name, folder.parent)


AnyLearner = WholeLearner | ShardedLearner


def make_learner(
    name: str, settings: ModelConfig, path: str, bases: Bases, seed: int, options: dict[str, Any]
) -> tuple[AnyLearner, PreTrainedTokenizerBase]:
    """The learner of the weights at `path` and their tokenizer.

    An adapter's base is looked for in `bases`, and put there. `options` are those of `Learner`.
    Raises `UserError` for a model that cannot be loaded.
    """
    if settings.devices > 1:
        assert settings.lora is None, "the configuration refuses it"
        make = partial(load_model, path, settings.dtype, settings.revision)
        tokenizer = load_tokenizer(path, settings.revision)
        return ShardedLearner(name, make, devices=settings.devices, **options), tokenizer
    device = torch.device(local_device())
    if settings.lora is None:
        model, tokenizer = load_pretrained(path, settings.dtype, settings.revision)
        return WholeLearner(torch.nn.Module.to(model, device), **options), tokenizer
    model, tokenizer = adapted_model(name, settings, bases, device=device, seed=seed)
    if path != settings.path:
        load_adapter(model, Path(path))
    return AdapterLearner(model, lora=settings.lora, **options), tokenizer
