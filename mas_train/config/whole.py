"""The whole configuration, and what its sections must agree on."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import ConfigDict, Field, model_validator

from mas_envs.episodes.schema import Sampling
from mas_envs.protocol import role_of
from mas_train.config.learning import (
    CorrectionConfig,
    EstimatorConfig,
    LossConfig,
    TrainConfig,
    ValueConfig,
)
from mas_train.config.models import ModelConfig
from mas_train.config.no_effect import refuse_no_effect
from mas_train.config.play import (
    AgentConfig,
    EnvConfig,
    EvalConfig,
    RolloutConfig,
    RunConfig,
    TasksConfig,
)
from mas_train.config.section import Section

SCHEMA = 1
_MODEL_NAME = re.compile(r"[\w-][\w.-]*(?<!\.pt)(?<!\.json)(?<!\.optimizer)")
"""A model's name is that of its folder in a checkpoint, beside NAME.optimizer.pt and state.json."""


class Config(Section):
    """The whole file. `mas-train check FILE` prints every key with its value.

    `about` is for people: what a recipe is, what it needs, where its numbers are from.
    """

    about: dict[str, Any] = {}
    schema_: Annotated[int, Field(alias="schema")] = SCHEMA
    run: RunConfig = RunConfig()
    env: EnvConfig = EnvConfig()
    tasks: TasksConfig = TasksConfig()
    agents: dict[str, AgentConfig]
    models: dict[str, ModelConfig]
    rollout: RolloutConfig = RolloutConfig()
    estimator: EstimatorConfig = EstimatorConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    cluster: Literal["local"] = "local"

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, populate_by_name=True)

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        for name in self.models:
            if not _MODEL_NAME.fullmatch(name):
                raise ValueError(
                    f"models: {name!r} cannot be a model's name, for it names a folder; use "
                    "letters, digits, '-' and '_'"
                )
        for name, agent in self.agents.items():
            whole = self.agents.get(role_of(name), agent)
            left_out = {"loss_weight", "invalid_penalty"} - agent.model_fields_set
            self.agents[name] = agent.model_copy(
                update={key: getattr(whole, key) for key in left_out}
            )
        used = {agent.model for agent in self.agents.values()}
        for role, agent in self.agents.items():
            if agent.model not in self.models:
                near = difflib.get_close_matches(agent.model, self.models, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"models: {sorted(self.models)}"
                raise ValueError(f"agents.{role}.model: no model {agent.model!r}; {hint}")
        self._optimizers_of_agents()
        if idle := set(self.models) - used:
            away = f"remove them (--set models.{sorted(idle)[0]}=null)"
            raise ValueError(f"models: {sorted(idle)} are played by no agent; {away}")
        if all(model.optimizer is None for model in self.models.values()):
            raise ValueError("models: none has an optimizer, so there is nothing to train")
        trained = [model for model in self.models.values() if model.optimizer is not None]
        sampled_elsewhere = any(model.engine.name in ("vllm", "http") for model in trained)
        if sampled_elsewhere and "correction" not in self.loss.model_fields_set:
            self.loss.correction = CorrectionConfig()
        if self.loss.surrogate == "reinforce" and self.train.updates_per_step > 1:
            raise ValueError(
                "train.updates_per_step: surrogate 'reinforce' has no ratio for a second update on "
                "the same experience; set it to 1, or loss.surrogate: ppo"
            )
        if self.estimator.preset == "ppo" and self.loss.value is None:
            self.loss.value = ValueConfig()
        if self.estimator.preset != "ppo" and self.loss.value is not None:
            raise ValueError("loss.value: only estimator preset 'ppo' has a value head")
        refuse_no_effect(self)
        return self

    def _optimizers_of_agents(self) -> None:
        """Hand `agents.NAME.optimizer` to the model. Raises `ValueError` where agents differ."""
        said: dict[str, str] = {}  # model -> the agent that gave it its optimizer
        for name, agent in self.agents.items():
            if agent.optimizer is None or agent.model not in self.models:
                continue
            model = self.models[agent.model]
            first = said.setdefault(agent.model, name)
            sharing = [one for one, other in self.agents.items() if other.model == agent.model]
            if self.agents[first].optimizer != agent.optimizer:
                raise ValueError(
                    f"agents.{name}.optimizer is not that of agents.{first}, and both are played "
                    f"by model {agent.model!r}, which has one; say it in models.{agent.model}, or "
                    "give each agent a model of its own"
                )
            if silent := [one for one in sharing if self.agents[one].optimizer is None]:
                raise ValueError(
                    f"agents.{name}.optimizer: agents {silent} share model {agent.model!r} and do "
                    f"not say it; set models.{agent.model}.optimizer instead"
                )
            if "optimizer" in model.model_fields_set and model.optimizer != agent.optimizer:
                raise ValueError(
                    f"agents.{name}.optimizer is not models.{agent.model}.optimizer; say it once, "
                    f"in models.{agent.model}"
                )
            model.optimizer = agent.optimizer
        for name, agent in self.agents.items():  # it is the model's from here on
            self.agents[name] = agent.model_copy(update={"optimizer": None})

    def entry(self, agent: str) -> str:
        """The key of `agents:` that holds for an agent id: its own, or else its role."""
        return agent if agent in self.agents else role_of(agent)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.run.dir) / self.run.name

    def sampling(self) -> Sampling:
        """Sampling of training rollouts (no top-p: it would bias the ratio)."""
        return Sampling(temperature=self.rollout.temperature, max_tokens=self.rollout.max_tokens)

    def eval_sampling(self) -> Sampling:
        """Sampling of evaluations."""
        return Sampling(
            temperature=self.eval.temperature,
            top_p=self.eval.top_p,
            max_tokens=self.eval.max_tokens or self.rollout.max_tokens,
        )

    def to_yaml(self) -> str:
        """The resolved configuration, every default written out."""
        dumped = self.model_dump(mode="json", by_alias=True)
        return yaml.safe_dump(dumped, sort_keys=False, allow_unicode=True)
