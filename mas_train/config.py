"""The configuration of a run: one YAML file, validated before anything starts.

    config = load("team.yaml", overrides=["train.steps=50", "models.qwen-a.optimizer.lr=3e-6"])

Unknown keys are errors that name the nearest valid one. No torch is imported here.
"""

from __future__ import annotations

import contextlib
import difflib
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mas_envs.episodes.schema import Sampling
from mas_envs.errors import BadFile, UserError
from mas_envs.protocol import role_of

SCHEMA = 1
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """Base of all sections: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class RunConfig(Section):
    """Where the run lives: `dir/name` is the run folder.

    `threads` of torch on the CPU (None: its own choice). One is fastest for models under about
    10 M parameters, and what a bit-for-bit resume needs.
    """

    name: Annotated[str, Field(pattern=r"^[\w.-]+$")] = "run"
    seed: Annotated[int, Field(ge=0)] = 0
    dir: str = "runs"
    threads: Positive | None = None


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
    the role's for all of its agents.
    """

    model: str
    loss_weight: Annotated[float, Field(ge=0)] = 1.0
    invalid_penalty: Annotated[float, Field(ge=0)] = 0.1


class OptimizerConfig(Section):
    """AdamW and its schedule. `warmup_steps` and decay count optimizer steps."""

    name: Literal["adamw"] = "adamw"
    lr: Annotated[float, Field(gt=0)] = 1e-6
    betas: tuple[Share, Share] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0


class EngineConfig(Section):
    """What generates for a model. `max_model_len` bounds prompt plus response in tokens (None:
    the model's own limit), `max_rows` the rows decoded at once.
    """

    name: Literal["transformers"] = "transformers"
    max_model_len: Positive | None = None
    max_rows: Positive = 256


class ModelConfig(Section):
    """Weights and how they are trained; without an optimizer they are frozen."""

    path: str
    revision: str = "main"
    dtype: Literal["float32", "bfloat16"] = "float32"
    optimizer: OptimizerConfig | None = OptimizerConfig()
    engine: EngineConfig = EngineConfig()
    template: dict[str, Any] = {}


class RolloutConfig(Section):
    """How experience is gathered: `prompts_per_step` groups of `group_size` episodes each step."""

    group_size: Positive = 8
    prompts_per_step: Positive = 32
    concurrency: Positive = 256
    temperature: Annotated[float, Field(gt=0)] = 1.0
    max_tokens: Positive = 1024
    deadline_s: Annotated[float, Field(gt=0)] | None = None


class EstimatorConfig(Section):
    """A preset of `mas_train.advantages` and, where given, choices that override it.

    It leaves `loss.aggregation` alone: Dr. GRPO as published is preset `dr_grpo` with `constant`.
    """

    preset: str = "drmas"
    unit: str | None = None
    group: str | None = None
    mean: str | None = None
    std: str | None = None

    @model_validator(mode="after")
    def _known(self) -> EstimatorConfig:
        from mas_train.advantages import advantages

        # Raises UnknownName for a preset or choice that does not exist, on an empty batch.
        advantages([], [], [], [], **self.model_dump())
        return self


class CorrectionConfig(Section):
    """Truncated importance sampling of the sampler/learner mismatch: w = min(π_old/μ, cap)."""

    name: Literal["tis"] = "tis"
    cap: Annotated[float, Field(gt=0)] = 2.0


class LossConfig(Section):
    """The surrogate and how per-token losses are aggregated. `kl` has no terms yet: null."""

    surrogate: Literal["ppo"] = "ppo"
    clip_low: Share = 0.2
    clip_high: Annotated[float, Field(ge=0)] = 0.2
    dual_clip: Annotated[float, Field(gt=1)] | None = 3.0
    aggregation: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"] = (
        "token_mean"
    )
    kl: None = None
    correction: CorrectionConfig | None = None


class TrainConfig(Section):
    """The loop. `eval_every` 0 evaluates never, `checkpoint_every` counts steps.

    `token_budget` bounds the packed tokens of one micro-batch; it changes memory, not gradients.
    """

    steps: Positive = 200
    updates_per_step: Positive = 1
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    token_budget: Positive = 16384
    checkpoint_every: Positive = 20
    keep_checkpoints: Positive = 2
    eval_every: Annotated[int, Field(ge=0)] = 10
    wandb: dict[str, Any] | None = None


class EvalConfig(Section):
    """Evaluation on the dev tasks: `tasks` of them (None: all), `samples` episodes each."""

    samples: Positive = 16
    tasks: Positive | None = None
    temperature: Annotated[float, Field(ge=0)] = 0.6
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    max_tokens: Positive | None = None


class Config(Section):
    """The whole file. `mas-train check FILE` prints every key with its value."""

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
        if idle := set(self.models) - used:
            raise ValueError(f"models: {sorted(idle)} are played by no agent; remove them")
        if all(model.optimizer is None for model in self.models.values()):
            raise ValueError("models: none has an optimizer, so there is nothing to train")
        return self

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


def load(path: str | Path, overrides: typing.Sequence[str] = ()) -> Config:
    """Read, override (`key.path=value`, value in YAML) and validate.

    Raises `BadFile` or `UserError`, naming every wrong key, its value and the nearest valid key.
    """
    path = Path(path)
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read", fix="give a YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise BadFile(path, f"not YAML ({problem})", mark.line + 1 if mark else None) from None
    if not isinstance(tree, dict):
        raise BadFile(path, f"holds a {type(tree).__name__}, not a mapping of sections")
    return resolve(tree, overrides, where=str(path))


def resolve(
    tree: dict[str, Any], overrides: typing.Sequence[str] = (), where: str = "config"
) -> Config:
    """A validated `Config` from plain values. Raises `UserError`."""
    tree = dict(tree)
    for override in overrides:
        _override(tree, override)
    schema = tree.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise UserError(
            f"{where}: schema: {schema!r} is not {SCHEMA}; this release reads schema {SCHEMA} only"
        )
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise UserError("\n".join(_explain(problem, where) for problem in error.errors())) from None


def _override(tree: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UserError(f"--set {override!r}; write it as key.path=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"--set {override!r}: {text!r} is not a YAML value") from None
    if isinstance(value, str):
        # YAML 1.1 reads 3e-6 as a string; people mean the number.
        with contextlib.suppress(ValueError):
            value = float(value)
    for key in keys[:-1]:
        branch = tree.get(key, {})
        if not isinstance(branch, dict):
            raise UserError(f"--set {override!r}: {key!r} is {branch!r}, not a section")
        # Copied: a YAML alias makes two sections one object, and only one of them is meant.
        tree[key] = tree = dict(branch)
    tree[keys[-1]] = value


def _explain(problem: Any, where: str) -> str:
    """One line: file, key, value, and the nearest valid key for an unknown one."""
    location = [str(part) for part in problem["loc"]]
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        known = _keys_at(Config, location[:-1])
        close = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"valid keys: {', '.join(known)}"
        return f"{where}: unknown key {key!r}; {hint}"
    if problem["type"] == "missing":
        return f"{where}: {key}: is missing; add it"
    message = problem["msg"].removeprefix("Value error, ")
    value = problem["input"]
    shown = "" if isinstance(value, dict | BaseModel) else f" (got {value!r})"
    return f"{where}: {key + ': ' if key else ''}{message}{shown}"


def _keys_at(section: Any, location: list[str]) -> list[str]:
    """The valid keys of the section that `location` leads to; [] where any key is valid."""
    for part in location:
        if isinstance(section, type) and issubclass(section, BaseModel):
            section = section.model_fields[part].annotation
        else:
            section = typing.get_args(section)[1]  # dict[str, Section]
        if typing.get_origin(section) in (types.UnionType, typing.Union):
            section = next(a for a in typing.get_args(section) if a is not type(None))
    if isinstance(section, type) and issubclass(section, BaseModel):
        return [field.alias or name for name, field in section.model_fields.items()]
    return []
