"""The models of a run and the roles they play: shared, separate, heterogeneous or frozen.

Roles are not models: `agents:` maps each role to a model (an agent id overrides its role), so two
roles may share one, and two models may start from the same checkpoint and grow apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from mas_envs.errors import BadFile, MachineryError, UserError
from mas_envs.policies.base import Policy
from mas_train.checkpoint import optimizer_file
from mas_train.config import Config, ModelConfig
from mas_train.engines.hf_model import load_pretrained
from mas_train.engines.transformers import TransformersEngine
from mas_train.learner import Learner
from mas_train.log_probs import row_log_probs
from mas_train.rows import Rows

PROBE_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
"""Nats by which engine and learner may differ on one token; forgotten weights differ by 1 to 3."""


class TrainedModel:
    """One set of weights under training: a learner, and an engine that samples from its copy."""

    def __init__(
        self, name: str, config: Config, engine: TransformersEngine, checkpoint: Path | None
    ) -> None:
        self.name, self.settings, self.engine = name, config.models[name], engine
        self.entry = config.entry
        self.loss_weights = {
            entry: agent.loss_weight
            for entry, agent in config.agents.items()
            if agent.model == name
        }
        self.loss, self.train = config.loss, config.train
        self.max_tokens = config.rollout.max_tokens
        assert self.settings.optimizer is not None
        path = weights_path(name, self.settings, checkpoint)
        model, self.tokenizer = load_pretrained(path, self.settings.dtype, self.settings.revision)
        self.learner = Learner(
            model.to(engine.model.device),  # type: ignore[arg-type]  # `to` is wrapped untyped
            self.settings.optimizer,
            total_steps=config.train.steps * config.train.updates_per_step,
            max_grad_norm=config.train.max_grad_norm,
            token_budget=config.train.token_budget,
        )
        if checkpoint is not None:
            self._restore(optimizer_file(checkpoint, name))

    def update(self, rows: Rows, advantages: np.ndarray[Any, Any]) -> dict[str, float]:
        """One batch: the learner takes the rows of this model's agents, whatever else is there."""
        mine = self._mine(rows)
        return self.learner.update(
            rows.take(mine),
            advantages[mine],
            self.loss,
            loss_weights=self.loss_weights,
            updates=self.train.updates_per_step,
            max_tokens=self.max_tokens,
        )

    def plays(self, agent: str) -> bool:
        """Whether this model speaks for the agent of that id."""
        return self.entry(agent) in self.loss_weights

    def _mine(self, rows: Rows) -> np.ndarray[Any, Any]:
        return np.array([self.plays(agent) for agent in rows.agent_id.tolist()], np.bool_)

    def sync(self, version: int, rows: Rows | None = None) -> float:
        """Push the weights to the engine; returns the largest log-prob difference on one row.

        Raises `MachineryError` when the engine does not compute what the learner computes: a
        stale cache or a forgotten tied weight would train on another policy's samples unnoticed.
        """
        self.engine.load_weights(self.learner.model.state_dict(), version)
        if rows is None:
            return 0.0
        sampled = np.array([len(ids) > 0 for ids in rows.ids], np.bool_)
        mine = np.flatnonzero(self._mine(rows) & rows.known & sampled)
        if not len(mine):
            return 0.0
        row = rows.take(mine[:1])
        row = dataclasses.replace(row, temperature=np.ones(1))
        ours = row_log_probs(self.learner.model, row)[0]
        theirs = self.engine.probe(row.prompt_ids[0].tolist(), row.ids[0].tolist())
        difference = float(np.abs(ours - theirs).max())
        if not np.isfinite(difference):
            raise MachineryError(
                f"model {self.name!r}: its log-probs are not finite after the weight update to "
                f"version {version}; lower models.{self.name}.optimizer.lr"
            )
        if difference > PROBE_TOLERANCE[self.settings.dtype]:
            raise MachineryError(
                f"model {self.name!r}: after the weight update to version {version} the engine's "
                f"log-probs differ from the learner's by {difference:.3g} nats"
            )
        return difference

    def save(self, folder: Path, optimizer_file: Path) -> None:
        """Weights and tokenizer as a Hugging Face folder, the learner's state beside it."""
        state = self.learner.state_dict()
        del state["model"]
        try:
            self.learner.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            with optimizer_file.open("wb") as file:  # torch's own files do not say what failed
                torch.save(state, file)
        except (SafetensorError, RuntimeError) as error:  # their words for a full disk
            cause = error.__context__ if isinstance(error.__context__, OSError) else error
            raise OSError(f"model {self.name!r}: {cause}") from error

    def _restore(self, file: Path) -> None:
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            self.learner.load_state_dict({**state, "model": self.learner.model.state_dict()})
        except (OSError, EOFError, KeyError, ValueError, RuntimeError, UnpicklingError) as error:
            reason = str(error).strip().splitlines()[0]
            raise BadFile(file, f"does not fit model {self.name!r} ({reason})") from error


class Team:
    """All models of a run. `policies` maps role or agent id → policy, `trained` name → model.

    `version` counts the steps that the weights have learned from; None while they change.
    """

    version: int | None = None

    def __init__(self, config: Config, checkpoint: Path | None = None) -> None:
        if config.run.threads is not None:
            torch.set_num_threads(config.run.threads)
        self.engines = engines = load_engines(config, checkpoint)
        self.policies: dict[str, Policy] = {
            entry: engines[agent.model] for entry, agent in config.agents.items()
        }
        self.trained = {
            name: TrainedModel(name, config, engines[name], checkpoint)
            for name, settings in config.models.items()
            if settings.optimizer is not None
        }

    @property
    def sampled_tokens(self) -> int:
        """How many tokens the engines have sampled so far."""
        return sum(engine.stats.tokens for engine in self.engines.values())

    def trained_agents(self, agents: Iterable[str]) -> set[str]:
        """Those of the agent ids whose turns are trained on."""
        return {a for a in agents if any(model.plays(a) for model in self.trained.values())}

    def update(self, rows: Rows, advantages: np.ndarray[Any, Any]) -> dict[str, dict[str, float]]:
        """Every trained model takes one batch; its metrics by model name."""
        self.version = None
        return {name: model.update(rows, advantages) for name, model in self.trained.items()}

    def sync(self, version: int, rows: Rows | None = None) -> None:
        """Push all weights to the engines and probe them. Raises `MachineryError`."""
        for model in self.trained.values():
            model.sync(version, rows)
        self.version = version


def load_engines(config: Config, checkpoint: Path | None = None) -> dict[str, TransformersEngine]:
    """The engine of every model by name, with the checkpoint's weights where it has some."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    engines = {}
    for name, settings in config.models.items():
        try:
            engines[name] = TransformersEngine.from_pretrained(
                weights_path(name, settings, checkpoint),
                dtype=settings.dtype,
                revision=settings.revision,
                device=device,
                name=name,
                max_model_len=settings.engine.max_model_len,
                max_rows=settings.engine.max_rows,
                template_args=settings.template,
            )
        except UserError as error:
            raise UserError(f"models.{name}: {error}") from error
    return engines


def weights_path(name: str, settings: ModelConfig, checkpoint: Path | None) -> str:
    """Where a model's weights are now. Raises `BadFile` if the checkpoint lacks a trained one."""
    if checkpoint is None or settings.optimizer is None:
        return settings.path
    if not (checkpoint / name).is_dir():
        raise BadFile(checkpoint, f"has no model {name!r}", fix="was `models:` changed?")
    return str(checkpoint / name)
