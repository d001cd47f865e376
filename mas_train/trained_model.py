"""One model under training: its learner, its reference policy, and the engine it is pushed to."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
from safetensors import SafetensorError

from mas_envs.errors import BadFile, MachineryError
from mas_train.config import Config, ModelConfig
from mas_train.engines.adapter import Adapter
from mas_train.engines.base import Engine
from mas_train.experience.credit import Credit
from mas_train.experience.rows import Rows
from mas_train.learner.batch import at_rows
from mas_train.learner.learner import NonFiniteGradient
from mas_train.learner.lora import Bases
from mas_train.learner.making import AdapterLearner, make_learner
from mas_train.learner.sharded.learner import load_model
from mas_train.learner.sharded.state import stored
from mas_train.out_of_memory import memory_errors, out_of_memory
from mas_train.run.checkpoint import optimizer_file

PROBE_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1}
"""Mean nats by which engine and learner may differ on a token; forgotten weights differ by 1 to 3.
Half precision differs by more than that on single unlikely tokens."""
PROBE_TOKENS = 64
CACHE_BLOCK = 32
"""Tokens of a block in an engine's prefix cache: shorter prompts would not show a stale one."""


class TrainedModel:
    """One set of weights under training: a learner, and an engine that samples from its copy."""

    def __init__(
        self,
        name: str,
        config: Config,
        engine: Engine,
        checkpoint: Path | None,
        bases: Bases,
    ) -> None:
        self.name, self.settings, self.engine = name, config.models[name], engine
        self.entry = config.entry
        self.loss_weights = {
            entry: agent.loss_weight
            for entry, agent in config.agents.items()
            if agent.model == name
        }
        self.loss, self.train, self.rollout = config.loss, config.train, config.rollout
        assert self.settings.optimizer is not None
        path = weights_path(name, self.settings, checkpoint)
        options: dict[str, Any] = {
            "optimizer": self.settings.optimizer,
            "total_steps": config.train.steps * config.train.updates_per_step,
            "max_grad_norm": config.train.max_grad_norm,
            "token_budget": config.train.token_budget,
            "value_head": config.loss.value is not None,
            "gradient_checkpointing": self.settings.gradient_checkpointing,
        }
        with memory_errors(name, "loading"):
            self.learner, self.tokenizer = make_learner(
                name, self.settings, path, bases, config.run.seed, options
            )
            if checkpoint is not None:
                self._restore(optimizer_file(checkpoint, name))

    def look(self, rows: Rows, columns: dict[str, list[Any]]) -> None:
        """Fill in, for this model's rows, what its loss needs to know of each token before it
        learns: `reference_log_probs` with a KL, `values` with a value head; one array [T] a row.
        """
        looks: dict[str, Callable[[Rows], list[Any]]] = {}
        if self.loss.kl is not None:
            looks["reference_log_probs"] = self._reference_log_probs
        if self.loss.value is not None:
            looks["values"] = self.learner.row_values
        mine = np.flatnonzero(self._mine(rows) & rows.known)
        for name, look in looks.items():
            column = columns.setdefault(name, [np.zeros(len(ids)) for ids in rows.ids])
            with memory_errors(self.name, "looking at what was sampled"):
                found = look(rows.take(mine))
            for i, values in zip(mine.tolist(), found, strict=True):
                column[i] = values

    def update(self, credit: Credit) -> dict[str, float]:
        """One batch: the learner takes the rows of this model's agents, whatever else is there."""
        mine = np.flatnonzero(self._mine(credit.rows))
        columns = {"advantages": credit.advantages, **credit.columns}
        own = {name: at_rows(column, mine) for name, column in columns.items()}
        overlong = self.rollout.overlong
        with memory_errors(self.name, "learning"), gradient_errors(self.name):
            metrics: dict[str, float] = self.learner.update(
                credit.rows.take(mine),
                loss=self.loss,
                loss_weights=self.loss_weights,
                updates=self.train.updates_per_step,
                max_tokens=self.rollout.max_tokens,
                mask_cut=overlong is not None and overlong.mask,
                **own,
            )
        return metrics

    def _reference_log_probs(self, rows: Rows) -> list[Any]:
        """Of the weights that the run started from; an adapter started from its base."""
        settings = self.settings
        start = partial(load_model, settings.path, settings.dtype, settings.revision)
        return self.learner.reference_log_probs(start, rows)

    def plays(self, agent: str) -> bool:
        """Whether this model speaks for the agent of that id."""
        return self.entry(agent) in self.loss_weights

    def _mine(self, rows: Rows) -> np.ndarray[Any, Any]:
        return np.array([self.plays(agent) for agent in rows.agent_id.tolist()], np.bool_)

    def sync(self, version: int, rows: Rows | None = None) -> float:
        """Push the weights to the engine; returns the mean log-prob difference on one row.

        Raises `MachineryError` when the engine does not compute what the learner computes: a
        stale cache or a forgotten tied weight would train on another policy's samples unnoticed.
        """
        row = None if rows is None else self._probe_row(rows)
        with memory_errors(self.name, "pushing weights to its engine"):
            self.engine.load_weights(self._weights(), version)
            if row is None:
                return 0.0
            ours = self.learner.log_probs(row)[0]
            theirs = self.engine.probe(row.prompt_ids[0].tolist(), row.ids[0].tolist())
        difference = float(np.abs(ours - theirs).mean())
        if not np.isfinite(difference):
            raise MachineryError(
                f"model {self.name!r}: its log-probs are not finite after the weight update to "
                f"version {version}; lower models.{self.name}.optimizer.lr"
            )
        if difference > PROBE_TOLERANCE[self.settings.dtype]:
            raise MachineryError(
                f"model {self.name!r}: after the weight update to version {version} the engine's "
                f"log-probs differ from the learner's by {difference:.3g} nats a token"
            )
        return difference

    def _probe_row(self, rows: Rows) -> Rows | None:
        """The start of one of this model's turns, at temperature 1; None if it had none."""
        sampled = np.array([len(ids) > 0 for ids in rows.ids], np.bool_)
        mine = np.flatnonzero(self._mine(rows) & rows.known & sampled)
        if not len(mine):
            return None
        cached = [i for i in mine.tolist() if len(rows.prompt_ids[i]) >= CACHE_BLOCK]
        row = rows.take(np.array((cached or mine.tolist())[:1]))
        return dataclasses.replace(
            row,
            temperature=np.ones(1),
            ids=[row.ids[0][:PROBE_TOKENS]],
            log_probs=[row.log_probs[0][:PROBE_TOKENS]],
        )

    def close(self) -> None:
        """End the learner's processes, if it has any."""
        self.learner.close()

    def _weights(self) -> Any:
        """What the engine takes: all weights, or the adapter's where it can add them itself."""
        if isinstance(self.engine, Adapter):
            assert isinstance(self.learner, AdapterLearner)
            return self.learner.adapter_weights()
        return self.learner.named_weights()

    def save(self, folder: Path, optimizer_file: Path) -> None:
        """Weights and tokenizer as a Hugging Face folder, the learner's state beside it.

        Of a model with an adapter only the adapter is written, as PEFT does.
        """
        try:
            self.learner.save_weights(folder)
            self.tokenizer.save_pretrained(folder)
            self.learner.save_state(optimizer_file)
        except (SafetensorError, RuntimeError) as error:  # their words for a full disk
            cause = error.__context__ if isinstance(error.__context__, OSError) else error
            raise OSError(f"model {self.name!r}: {cause}") from error

    def _restore(self, file: Path) -> None:
        try:
            self.learner.load_state(file)
        except (OSError, EOFError, KeyError, ValueError, RuntimeError, UnpicklingError) as error:
            if out_of_memory(error):
                raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BadFile(
                stored(file),
                f"does not fit model {self.name!r} ({reason:.200})",
                fix="was the model changed since?",
            ) from error


def weights_path(name: str, settings: ModelConfig, checkpoint: Path | None) -> str:
    """Where a model's weights are now. Raises `BadFile` if the checkpoint lacks a trained one."""
    if checkpoint is None or settings.optimizer is None:
        return settings.path
    if not (checkpoint / name).is_dir():
        raise BadFile(checkpoint, f"has no model {name!r}", fix="was `models:` changed?")
    return str(checkpoint / name)


@contextlib.contextmanager
def gradient_errors(name: str) -> Iterator[None]:
    """A gradient that is not finite: name the model, and what else than its weights may do it."""
    try:
        yield
    except NonFiniteGradient as error:
        raise NonFiniteGradient(
            f"model {name!r}: {error} (models.{name}.optimizer.lr), or look for a huge "
            "agents.*.loss_weight, loss.entropy, loss.kl.coefficient or reward"
        ) from error
