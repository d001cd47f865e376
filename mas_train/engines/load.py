"""Making the engine that a configuration names; what an engine needs is imported only for it.

engine = load_engine("solver", config.models["solver"], config.models["solver"].path)
engines = load_engines(config.models, {"solver": "runs/demo/checkpoints/20/solver"})
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mas_envs.errors import UnknownName, UserError
from mas_train.config import ModelConfig
from mas_train.engines.base import Engine
from mas_train.model_path import model_path
from mas_train.out_of_memory import memory_errors


def load_engine(name: str, settings: ModelConfig, path: str) -> Engine:
    """The engine of the model `name` with the weights at `path` (its own, or a checkpoint's).

    Raises `UserError` that names the model: no such weights, engine not installed, a vocabulary or
    context length that does not fit, a trained model on an engine that takes no weights.
    """
    try:
        if settings.engine.name == "vllm" and settings.lora is not None:
            return _adapters({name: settings})[name]
        with memory_errors(name, "loading its engine"):
            engine: Engine = _load(name, settings, path)
        _check_template(engine, settings.template)
        return engine
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise UserError(
            f"models.{name}: the weights in {path!r} do not have the shapes that its config.json "
            "says; bring both from one model"
        ) from error
    except UserError as error:
        raise UserError(f"models.{name}: {error}{_other_reading(path)}") from error


def _check_template(engine: Any, given: Mapping[str, Any]) -> None:
    """Raises `UserError` for an argument that the model's chat template makes no use of."""
    chat = getattr(engine, "chat", None)
    template = getattr(getattr(chat, "tokenizer", None), "chat_template", None)
    if not given or not isinstance(template, str):
        return
    from jinja2 import Environment, TemplateSyntaxError
    from jinja2.meta import find_undeclared_variables

    try:
        known = find_undeclared_variables(Environment().parse(template))
    except TemplateSyntaxError:  # one with transformers' own blocks
        return
    if unused := sorted(set(given) - known):
        settable = known - {"messages", "add_generation_prompt", "tools", "documents"}
        raise UnknownName("argument of the model's chat template", unused[0], settable, "template")


def _other_reading(path: str) -> str:
    """A path that is no folder here is looked for at Hugging Face; whoever meant one must hear."""
    if Path(model_path(path)).exists() or path.startswith(("/", ".", "~")):
        return ""
    return (
        f" ({path!r} was taken for a Hugging Face id, for there is no such folder in {Path.cwd()}; "
        "write ./ before the name of a folder)"
    )


def load_engines(models: Mapping[str, ModelConfig], paths: Mapping[str, str]) -> dict[str, Engine]:
    """All engines by model name; `paths` gives the weights that are not at the model's own path.

    Models with `lora` are loaded without their adapters, whose weights are pushed. On vLLM those
    that share path, revision, dtype and engine are adapters on one base. Raises as `load_engine`
    does.
    """
    engines: dict[str, Engine] = {}
    for name, settings in models.items():
        if name in engines:
            continue
        if settings.engine.name != "vllm" or settings.lora is None:
            path = settings.path if settings.lora else paths.get(name, settings.path)
            engines[name] = load_engine(name, settings, path)
            continue
        alike = {one: other for one, other in models.items() if _base(other) == _base(settings)}
        try:
            engines |= _adapters(alike)
        except UserError as error:
            raise UserError(f"models.{name}: {error}") from error
    return {name: engines[name] for name in models}


def local_device() -> str:
    """Where models of this process run: "cuda" if there is one, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _base(settings: ModelConfig) -> dict[str, Any] | None:
    """What adapters must have in common; None without one."""
    if settings.engine.name != "vllm" or settings.lora is None:
        return None
    return settings.model_dump(include={"path", "revision", "dtype", "engine", "template"})


def _adapters(models: Mapping[str, ModelConfig]) -> dict[str, Engine]:
    ranks = {name: settings.lora.rank for name, settings in models.items() if settings.lora}
    first = next(iter(models.values()))
    base = _load("base", first, first.path, adapters=len(models), lora_rank=max(ranks.values()))
    return {
        name: base.adapter(name, settings.lora.alpha)
        for name, settings in models.items()
        if settings.lora
    }


def _check_vocabulary(tokens: int, path: str, revision: str) -> None:
    """Raises `UserError` if the model has no embedding for a token that may be sampled."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_path(path), revision=revision)
    if tokens > (size := config.get_text_config().vocab_size):
        raise UserError(f"the tokenizer has {tokens} tokens; the model has only {size}")


def _load(name: str, settings: ModelConfig, path: str, **options: Any) -> Any:
    engine = settings.engine
    common: dict[str, Any] = {
        "name": name,
        "max_rows": engine.max_rows,
        "template_args": settings.template,
    }
    weights: dict[str, Any] = {
        "dtype": settings.dtype,
        "revision": settings.revision,
        "max_model_len": engine.max_model_len,
    }
    match engine.name:
        case "http":
            from mas_train.engines.http import FROZEN, HTTPEngine

            if settings.optimizer is not None:
                raise UserError(FROZEN)
            return HTTPEngine(str(engine.url), settings.path, **common)
        case "fake":
            from mas_train.engines.fake import FakeEngine

            pace = engine.tokens_per_second
            fake = FakeEngine(path, tokens_per_second=pace, **common, **weights)
            _check_vocabulary(len(fake.chat.tokenizer), path, settings.revision)
            return fake
        case "vllm":
            from mas_train.engines.vllm import VLLMEngine

            own = engine.model_dump(include={"memory", "tensor_parallel", "eager", "sleep"})
            return VLLMEngine(path, **own, **options, **common, **weights)
        case "transformers":
            from mas_train.engines.transformers import TransformersEngine

            where = local_device()
            return TransformersEngine.from_pretrained(path, device=where, **common, **weights)
