"""A learner on several processes, with the methods of `mas_train.learner.learner.Learner`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from mas_train.config import LossConfig, OptimizerConfig
from mas_train.engines.chat import checked_path
from mas_train.engines.hf_model import load_pretrained
from mas_train.experience.rows import Rows
from mas_train.learner.batch import PerToken
from mas_train.learner.sharded.group import Group


class ShardedLearner:
    """A `Learner` cut over `devices` processes: same gradient, 1/`devices` of the memory each.

    `make_model` is called in each process and must be importable there: a module's function, or a
    `functools.partial` of one. `options` are those of `Learner`. Every method may raise
    `MachineryError`, when a process has ended: the learner is lost then, up to what was saved.
    """

    def __init__(
        self,
        name: str,
        make_model: Callable[[], PreTrainedModel],
        optimizer: OptimizerConfig,
        *,
        devices: int,
        **options: Any,
    ) -> None:
        self.group = Group(name, devices)
        self.group.ask("start", make_model, optimizer, **options)

    def update(
        self, rows: Rows, advantages: ArrayLike | PerToken, loss: LossConfig, **options: Any
    ) -> dict[str, float]:
        """See `Learner.update`; the metrics are those of the whole batch and model."""
        metrics: dict[str, float] = self.group.ask("update", rows, advantages, loss, **options)
        return metrics

    def log_probs(self, rows: Rows) -> list[Any]:
        """See `Learner.log_probs`."""
        found: list[Any] = self.group.ask("log_probs", rows)
        return found

    def row_values(self, rows: Rows) -> list[Any]:
        """See `Learner.row_values`."""
        found: list[Any] = self.group.ask("row_values", rows)
        return found

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The whole weights by `state_dict` name, one at a time, on the CPU; take them all.

        Of the names of a tied weight only the first comes.
        """
        return self.group.stream("named_weights")

    def reference_log_probs(
        self, make_model: Callable[[], PreTrainedModel], rows: Rows
    ) -> list[Any]:
        """As `log_probs`, of another model, which is made at the first call and cut likewise."""
        found: list[Any] = self.group.ask("reference_log_probs", make_model, rows)
        return found

    def save_weights(self, folder: Path) -> None:
        """Whole weights as a Hugging Face folder, in the type that they were loaded in."""
        self.group.ask("save_weights", folder)

    def save_state(self, file: Path) -> None:
        """All the rest, into the folder that stands for `file`: see `state.save_state`."""
        self.group.ask("save_state", file)

    def load_state(self, file: Path) -> None:
        """See `state.load_state`."""
        self.group.ask("load_state", file)

    def close(self) -> None:
        """End the processes."""
        self.group.close()


def load_model(path: str, dtype: str, revision: str) -> PreTrainedModel:
    """A `make_model`, once its arguments are bound."""
    return load_pretrained(path, dtype, revision)[0]


def load_tokenizer(path: str, revision: str) -> PreTrainedTokenizerBase:
    """The tokenizer alone. Raises `UserError` for a path that cannot be."""
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        checked_path(path), revision=revision
    )
    return found
