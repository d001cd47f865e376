"""The configuration of a run: one YAML file, validated before anything starts.

    config = load("team.yaml", overrides=["train.steps=50", "models.qwen-a.optimizer.lr=3e-6"])

Unknown keys are errors that name the nearest valid one. No torch is imported here.
"""

from mas_train.config.file import Misconfigured, load, resolve
from mas_train.config.learning import (
    CLIPS,
    CorrectionConfig,
    EstimatorConfig,
    KLConfig,
    LossConfig,
    TrainConfig,
    ValueConfig,
)
from mas_train.config.models import EngineConfig, LoraConfig, ModelConfig, OptimizerConfig
from mas_train.config.play import (
    AgentConfig,
    EnvConfig,
    EvalConfig,
    OverlongConfig,
    RolloutConfig,
    RunConfig,
    TasksConfig,
)
from mas_train.config.section import Section
from mas_train.config.whole import SCHEMA, Config

__all__ = [
    "CLIPS",
    "SCHEMA",
    "AgentConfig",
    "Config",
    "CorrectionConfig",
    "EngineConfig",
    "EnvConfig",
    "EstimatorConfig",
    "EvalConfig",
    "KLConfig",
    "LoraConfig",
    "LossConfig",
    "Misconfigured",
    "ModelConfig",
    "OptimizerConfig",
    "OverlongConfig",
    "RolloutConfig",
    "RunConfig",
    "Section",
    "TasksConfig",
    "TrainConfig",
    "ValueConfig",
    "load",
    "resolve",
]
