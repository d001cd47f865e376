"""The sections about playing: the run, the environment, its tasks, its agents, the rollouts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from mas_train.config.models import OptimizerConfig
from mas_train.config.section import AboveZero, NotNegative, Positive, Section


class RunConfig(Section):
    """Where the run lives: `dir/name` is the run folder.

    `threads` of torch on the CPU (None: its own choice). One is fastest for models under about
    10 M parameters, and what a bit-for-bit resume needs.
    """

    name: str = "run"
    seed: Annotated[int, Field(ge=0)] = 0
    dir: str = "runs"
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        if not name.strip(". ") or "/" in name or not name.isprintable():
            raise ValueError("must be the name of a folder, such as team-1")
        return name


class EnvConfig(Section):
    """An environment id, its arguments and its prompt set (a shipped name or a TOML file).

    `prompts` may map roles or agents to sets: {solver: mine.toml}; the others keep the default.
    """

    id: str = "math-v0"
    args: dict[str, Any] = {}
    prompts: str | dict[str, str] | None = None


class TasksConfig(Section):
    """Keywords of `mas_envs.load_tasks` for training and for evaluation between steps."""

    train: dict[str, Any] = {"source": "arith", "split": "train"}
    dev: dict[str, Any] = {"source": "arith", "split": "dev"}


class AgentConfig(Section):
    """A role: which model plays it, how its loss is weighted, what a malformed answer costs.

    An agent id (`solver_1`) overrides its role: what it leaves out is its role's. The penalty is
    the role's for all of its agents. `loss_weight` 0 leaves an agent's turns out of the gradient
    of a model that it shares; a model of its own is frozen by `models.NAME.optimizer: null`.
    `optimizer` is the model's, said here: agents that share a model must agree.
    """

    model: str
    loss_weight: NotNegative = 1.0
    invalid_penalty: NotNegative = 0.1
    optimizer: OptimizerConfig | None = None


class OverlongConfig(Section):
    """What a turn that is too long costs, in tokens of `rollout.max_tokens` (arXiv 2503.14476).

    `mask` leaves turns cut off at the limit out of the gradient (their rewards still count in the
    statistics). `buffer` > 0 takes up to `penalty` from the reward of a turn in its last `buffer`
    tokens, rising linearly.
    """

    mask: bool = False
    buffer: Annotated[int, Field(ge=0)] = 0
    penalty: AboveZero = 1.0


class RolloutConfig(Section):
    """How experience is gathered: `prompts_per_step` groups of `group_size` episodes each step.

    `redraws` > 0: groups whose episodes all earned the same are replaced by groups of new prompts,
    at most so many times a step (DAPO's dynamic sampling, arXiv 2503.14476).
    """

    group_size: Positive = 8
    prompts_per_step: Positive = 32
    concurrency: Positive = 256
    temperature: AboveZero = 1.0
    max_tokens: Positive = 1024
    deadline_s: AboveZero | None = None
    redraws: Annotated[int, Field(ge=0)] = 0
    overlong: OverlongConfig | None = None


class EvalConfig(Section):
    """Evaluation on the dev tasks: `tasks` of them (None: all), `samples` episodes each."""

    samples: Positive = 16
    tasks: Positive | None = None
    temperature: NotNegative = 0.6
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    max_tokens: Positive | None = None
