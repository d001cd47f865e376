"""From a configuration to a plan: who plays on what, and what that takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mas_envs.errors import UserError
from mas_train.config import Config, ModelConfig
from mas_train.environment import make_env
from mas_train.plan.memory import (
    GIB,
    RESERVE,
    EngineMemory,
    LearnerMemory,
    engine_memory,
    learner_memory,
    trained,
)
from mas_train.plan.shapes import Shape, shape_of
from mas_train.plan.work import Work, work_of


@dataclass(frozen=True)
class ModelPlan:
    """One model of the run. `roles` play on it; `learner` is None where it is frozen.

    `max_len` bounds prompt plus response, `micro_batch` is the tokens of one backward pass. If
    `engine_of` is another model's name, that one's engine serves this one too.
    """

    name: str
    settings: ModelConfig
    shape: Shape
    roles: tuple[str, ...]
    trained: int
    max_len: int
    in_flight: int
    micro_batch: int
    learner: LearnerMemory | None
    engine_of: str | None = None

    def engine(self, device: int) -> EngineMemory:
        """The engine's memory on a device of `device` bytes."""
        if self.engine_of is not None:
            return EngineMemory(0, 0, 0, 0)
        return engine_memory(self.shape, self.settings, self.max_len, self.in_flight, device)


@dataclass(frozen=True)
class Plan:
    """What a configuration would run. The memory is that of each device."""

    config: Config
    env: str
    models: tuple[ModelPlan, ...]
    work: Work

    @property
    def reserve(self) -> int:
        """Bytes for CUDA itself: once for this process, once for each learner that has its own.

        That of an engine in vLLM is in its share, or in what it has asleep.
        """
        cut = [one for one in self.models if one.learner and one.settings.devices > 1]
        return RESERVE * (1 + len(cut))

    @property
    def resting(self) -> int:
        """Bytes of all learners while none works."""
        return sum(model.learner.resting for model in self.models if model.learner)

    @property
    def host(self) -> int:
        """Bytes of CPU memory that optimizers take while they do not step, all devices together."""
        return sum(
            (one.learner.masters + one.learner.moments) * one.settings.devices
            for one in self.models
            if one.learner is not None and one.learner.offloaded
        )

    def playing(self, device: int) -> int:
        """Bytes while the team plays: all engines awake, all learners at rest."""
        return self.reserve + self.resting + sum(one.engine(device).awake for one in self.models)

    def learning(self, device: int) -> int:
        """Bytes while the model that needs most learns; engines that can sleep are asleep."""
        asleep = sum(model.engine(device).asleep for model in self.models)
        growth = [one.learner.working - one.learner.resting for one in self.models if one.learner]
        return self.reserve + self.resting + asleep + max(growth)

    def peak(self, device: int) -> int:
        """The larger of the two, on a device of `device` bytes."""
        return max(self.playing(device), self.learning(device))

    def shortfall(self, device: int) -> list[str]:
        """Why it does not fit `device` bytes and what to lower, largest first; [] if it fits."""
        found = []
        for model in self.models:
            engine, engine_name = model.engine(device), model.settings.engine.name
            one = engine.per_token * model.max_len
            if engine_name == "vllm" and engine.cache < one:
                found.append(
                    f"models.{model.name}.engine.memory: {model.settings.engine.memory:g} of the "
                    f"device leaves {engine.cache / GIB:.1f} GiB for keys and values, and one row "
                    f"of {model.max_len} tokens takes {one / GIB:.1f}; raise it, or lower "
                    "engine.max_model_len and rollout.max_tokens"
                )
        for phase, needed in (
            ("playing", self.playing(device)),
            ("learning", self.learning(device)),
        ):
            if needed > device:
                lower = ", then ".join(self._largest(phase, device, needed - device))
                found.append(f"{phase} takes {needed / GIB:.1f} GiB: lower {lower}")
        return found

    def _largest(self, phase: str, device: int, excess: int) -> list[str]:
        """The keys behind the largest shares of that phase, until they cover the excess."""
        shares = sorted(self._shares(phase, device), reverse=True)
        named, covered = [], 0
        for size, key in shares:
            if covered >= excess or size == 0:
                break
            named.append(f"{key} ({size / GIB:.1f} GiB)")
            covered += size
        return named

    def _shares(self, phase: str, device: int) -> Iterable[tuple[int, str]]:
        held = "the learners' weights and state (by lora, optimizer.offload or more devices)"
        references = sum(model.learner.reference for model in self.models if model.learner)
        yield self.resting - references, held
        yield references, "the reference of loss.kl (by lora, kl: null or more devices)"
        for model in self.models:
            where, engine = f"models.{model.name}", model.engine(device)
            if phase == "playing" and model.settings.engine.name == "vllm":
                yield engine.awake, f"{where}.engine.memory"
            elif phase == "playing":
                yield engine.cache, f"{where}.engine.max_rows or rollout.max_tokens"
            elif model.settings.engine.name == "vllm" and not model.settings.engine.sleep:
                yield engine.asleep, f"{where}.engine.memory (or set its sleep: true)"
            elif model.settings.engine.name != "vllm":
                yield engine.asleep, f"{where}.engine.max_rows or rollout.max_tokens"
        if phase == "learning":
            worst = max((m for m in self.models if m.learner), key=_growth)
            assert worst.learner is not None
            where = f"models.{worst.name}"
            budget = "train.token_budget (or rollout.max_tokens: a row is never split)"
            if not worst.settings.gradient_checkpointing:
                budget += f", or set {where}.gradient_checkpointing: true,"
            learner = worst.learner
            backward = learner.backward >= learner.step
            yield learner.backward - learner.resting - learner.gradients if backward else 0, budget
            yield (
                learner.gradients if backward else learner.step - learner.resting,
                f"the gradients and the optimizer's step of {where} (by lora or more devices)",
            )


def _growth(model: ModelPlan) -> int:
    return model.learner.working - model.learner.resting if model.learner else 0


def make_plan(config: Config) -> Plan:
    """The plan of a configuration. Nothing is loaded but the environment and config.json files.

    Raises `UserError` for a model whose shape is not known and for lengths that do not fit it, and
    what `make_env` raises.
    """
    env = make_env(config)
    models: list[ModelPlan] = []
    for name, settings in config.models.items():
        models.append(_sharing(_model_plan(config, name, settings), models))
    longest = max(model.max_len for model in models)
    largest = max(models, key=lambda model: model.shape.parameters)
    work = work_of(config, env.max_decisions, longest, largest.shape, largest.settings)
    return Plan(config, config.env.id, tuple(models), work)


def _sharing(model: ModelPlan, others: Iterable[ModelPlan]) -> ModelPlan:
    """With LoRA, learners of one base share its weights, and so do their engines in vLLM."""
    settings, learner = model.settings, model.learner
    if settings.lora is None or learner is None:
        return model
    base = {"path", "revision", "dtype"}
    for other in others:
        if other.settings.lora is None or other.learner is None:
            continue
        if settings.model_dump(include=base) == other.settings.model_dump(include=base):
            own = learner.weights * model.trained // (model.shape.parameters + model.trained)
            model = replace(model, learner=replace(learner, weights=own))
        alike = base | {"engine", "template"}
        same = settings.model_dump(include=alike) == other.settings.model_dump(include=alike)
        if same and settings.engine.name == "vllm":
            return replace(model, engine_of=other.engine_of or other.name)
    return model


def _model_plan(config: Config, name: str, settings: ModelConfig) -> ModelPlan:
    try:
        shape = shape_of(settings.path)
        moved = trained(shape, settings.lora) if settings.optimizer is not None else 0
    except UserError as error:
        raise UserError(f"models.{name}: {error}") from None
    limit = settings.engine.max_model_len or shape.positions
    if limit is None:
        raise UserError(f"models.{name}.engine.max_model_len: is not set, and the longest context "
                        f"of {settings.path!r} is not known here; set it")  # fmt: skip
    if shape.positions is not None and limit > shape.positions:
        raise UserError(f"models.{name}.engine.max_model_len: {limit} is more than the "
                        f"{shape.positions} positions of {settings.path!r}")  # fmt: skip
    if config.rollout.max_tokens >= limit:
        raise UserError(f"rollout.max_tokens: {config.rollout.max_tokens} leaves no room for a "
                        f"prompt in the {limit} tokens of models.{name}")  # fmt: skip
    roles = tuple(role for role, agent in config.agents.items() if agent.model == name)
    episodes = config.rollout.prompts_per_step * config.rollout.group_size
    rows = min(config.rollout.concurrency, episodes, settings.engine.max_rows)
    # A row longer than the budget is a micro-batch by itself.
    micro_batch = max(config.train.token_budget, limit)
    learner = None
    if settings.optimizer is not None:
        learner = learner_memory(
            shape,
            settings,
            micro_batch,
            len(roles),
            reference=config.loss.kl is not None,
            value_head=config.loss.value is not None,
            entropy=config.loss.entropy != 0,
        )
    return ModelPlan(name, settings, shape, roles, moved, limit, rows * limit, micro_batch, learner)
