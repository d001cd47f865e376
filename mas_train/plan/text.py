"""A plan as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mas_train.plan.make import ModelPlan, Plan
from mas_train.plan.memory import GIB, RESERVE

DEVICES = (24, 48, 80, 141)
"""GiB of the devices that are judged unless told otherwise."""


def report(plan: Plan, devices: Sequence[float] = DEVICES) -> str:
    """What would run, what it takes, and whether it fits devices of so many GiB."""
    return "\n".join([*_about(plan), *_models(plan, devices[-1]), *_work(plan),
                      *_verdicts(plan, devices)])  # fmt: skip


def _about(plan: Plan) -> Iterator[str]:
    config = plan.config
    if title := config.about.get("title"):
        yield f"{title}"
    if hardware := config.about.get("hardware"):
        yield f"expected hardware: {' '.join(str(hardware).split())}"
    yield f"run {config.run.name}: {plan.env}, estimator {config.estimator.preset}, " \
          f"{config.train.steps} steps"  # fmt: skip


def _models(plan: Plan, largest: float) -> Iterator[str]:
    for model in plan.models:
        settings, engine = model.settings, model.engine(int(largest * GIB))
        tied = ", tied" if model.shape.tied else ""
        yield ""
        yield f"model {model.name}: {settings.path} at {settings.revision}, {settings.dtype}"
        yield f"  plays {', '.join(model.roles)}; engine {settings.engine.name}, learner " + (
            "none (frozen)" if model.learner is None else f"over {settings.devices} device(s)"
        )
        yield f"  parameters {model.shape.parameters:,}{tied}; trained {model.trained:,}"
        if model.learner is not None:
            yield from _learner(model)
        if model.engine_of is not None:
            yield f"  engine: an adapter on that of {model.engine_of}"
        elif settings.engine.name in ("transformers", "vllm"):
            yield _line("engine: weights", engine.weights)
            rows = f"{engine.per_token:,} bytes a token"
            if settings.engine.name == "vllm":
                held = engine.cache // engine.per_token
                rows += f"; room for {held // model.max_len} rows of {model.max_len} tokens on"
                rows += f" {largest:g} GiB"
            else:
                rows += f" x {model.in_flight:,} tokens in flight at most"
            yield _line("engine: keys and values", engine.cache, rows)
            sleeps = settings.engine.name == "vllm" and settings.engine.sleep
            asleep = "asleep; its process stays (assumed)" if sleeps else "stays"
            yield f"  {'engine while learning':32}{engine.asleep / GIB:9.2f} GiB  {asleep}"


def _learner(model: ModelPlan) -> Iterator[str]:
    memory, settings = model.learner, model.settings
    assert memory is not None
    yield _line("learner: weights", memory.weights)
    yield _line("learner: gradients", memory.gradients)
    if memory.norms_buffer:
        yield _line("learner: gradients by agent", memory.norms_buffer, "for their norms")
    note = "in CPU memory while not stepping" if memory.offloaded else ""
    if memory.masters:
        yield _line("learner: float32 weights", memory.masters, note)
    yield _line("learner: Adam's moments", memory.moments, note)
    if memory.reference:
        yield _line("learner: reference weights", memory.reference, "for loss.kl; they stay")
    yield _line("learner: optimizer's step", memory.step_copies, "on top, while stepping")
    how = "with" if settings.gradient_checkpointing else "without"
    yield _line("learner: activations", memory.activations,
                f"{model.micro_batch:,} tokens, {how} gradient checkpointing")  # fmt: skip
    yield _line("learner: a layer at work", memory.layer, "then the activations are fewer")
    yield _line("learner: logits", memory.logits, "before the layers' turn comes")
    if memory.head_gradients:
        yield _line("learner: the head's gradients", memory.head_gradients, "with the logits")
    if memory.gathered:
        yield _line("learner: gathered weights", memory.gathered, "embeddings and two layers")


def _work(plan: Plan) -> Iterator[str]:
    work, config = plan.work, plan.config
    yield ""
    yield (
        f"a step, at most: {config.rollout.prompts_per_step} prompts x "
        f"{config.rollout.group_size} episodes x {work.turns} turns = {work.tokens:,} tokens, "
        f"{work.sampled:,} of them sampled"
    )
    yield (
        f"  rollout {work.rollout_flops:.3g} FLOP, training {work.training_flops:.3g} FLOP; "
        f"attention at full length adds {work.attention:.0%}"
    )
    yield f"  {config.train.steps} steps: {config.train.steps * work.tokens:,} tokens at most"


def _verdicts(plan: Plan, devices: Sequence[float]) -> Iterator[str]:
    yield ""
    if plan.host:
        yield f"CPU memory: {plan.host / GIB:.0f} GiB for optimizers while they do not step"
    yield f"each device ({plan.reserve / GIB:g} GiB of it assumed for CUDA, {RESERVE / GIB:g} a " \
          "process; arithmetic, checked on a CPU, not yet on a GPU):"  # fmt: skip
    for size in devices:
        device = int(size * GIB)
        used = (
            f"playing {plan.playing(device) / GIB:.1f}, learning {plan.learning(device) / GIB:.1f}"
        )
        problems = plan.shortfall(device)
        yield f"  {size:g} GiB: {'does not fit' if problems else 'fits'} ({used} GiB)"
        for problem in problems:
            yield f"    {problem}"


def _line(what: str, size: int, note: str = "") -> str:
    return f"  {what:32}{size / GIB:9.2f} GiB{'  ' + note if note else ''}"
