"""The models of a run and the roles they play: shared, separate, heterogeneous or frozen.

Roles are not models: `agents:` maps each role to a model (an agent id overrides its role), so two
roles may share one, and two models may start from the same checkpoint and grow apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from mas_envs.policies.base import Policy
from mas_train.config import Config
from mas_train.engines import load
from mas_train.engines.base import Engine
from mas_train.engines.transformers import TransformersEngine
from mas_train.experience.credit import Credit
from mas_train.experience.rows import Rows
from mas_train.learner.lora import Bases, base_key, check_lora
from mas_train.trained_model import TrainedModel, weights_path


class Team:
    """All models of a run. `policies` maps role or agent id → policy, `trained` name → model.

    `version` counts the steps that the weights have learned from; None while they change.
    """

    version: int | None = None

    def __init__(self, config: Config, checkpoint: Path | None = None) -> None:
        if config.run.threads is not None:
            torch.set_num_threads(config.run.threads)
        for name, settings in config.models.items():
            check_lora(name, settings)
        self.engines = engines = load_engines(config, checkpoint)
        self.policies: dict[str, Policy] = {
            entry: engines[agent.model] for entry, agent in config.agents.items()
        }
        bases = frozen_bases(config, engines)
        self.trained = {
            name: TrainedModel(name, config, engines[name], checkpoint, bases)
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

    def look(self, rows: Rows) -> dict[str, list[Any]]:
        """What the losses need of each token before anything is learned: one array [T] a row."""
        columns: dict[str, list[Any]] = {}
        for model in self.trained.values():
            model.look(rows, columns)
        return columns

    def update(self, credit: Credit) -> dict[str, dict[str, float]]:
        """Every trained model takes one batch; its metrics by model name.

        The engines sleep meanwhile: what memory they free is the learners'.
        """
        self.version = None
        for engine in self.engines.values():
            engine.sleep()
        return {name: model.update(credit) for name, model in self.trained.items()}

    def sync(self, version: int, rows: Rows | None = None) -> None:
        """Push all weights to the engines and probe them. Raises `MachineryError`."""
        for model in self.trained.values():
            model.sync(version, rows)
        self.version = version

    def close(self) -> None:
        """End all engines, and learners that have processes of their own."""
        for model in self.trained.values():
            model.close()
        for engine in self.engines.values():
            engine.close()


def frozen_bases(config: Config, engines: Mapping[str, Engine]) -> Bases:
    """The models of frozen engines in this process, on which adapters can be trained too."""
    return {
        base_key(settings): (engine.model, engine.tokenizer)
        for name, settings in config.models.items()
        if settings.optimizer is None and isinstance(engine := engines[name], TransformersEngine)
    }


def load_engines(config: Config, checkpoint: Path | None = None) -> dict[str, Engine]:
    """The engine of every model by name, with the checkpoint's weights where it has some."""
    models = config.models
    return load.load_engines(
        models, {name: weights_path(name, one, checkpoint) for name, one in models.items()}
    )
