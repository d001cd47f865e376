"""Low-rank adapters (LoRA, arXiv 2106.09685) through PEFT: many agents on the weights of one.

    y = W x + (alpha / rank) B A x        W [out, in] fixed, A [rank, in], B [out, rank] trained

Every model of a shared base is a module tree of its own with its own A and B, whose W are the very
tensors of the base. So no adapter has to be switched on before it is used, and forgetting to do so
cannot train another agent's. B starts at zero: at first every model is its base.
"""

from __future__ import annotations

import contextlib
import copy
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from mas_envs.errors import BadFile, UserError
from mas_train.config import LoraConfig, ModelConfig
from mas_train.engines.hf_model import ADAPTER_FILE, load_pretrained

WEIGHTS_FILE = "adapter_model.safetensors"
_ADAPTER = "default"  # PEFT's name for the only adapter of a model; it is not in its files
_PREFIX = "base_model.model."  # which PEFT's files put before the names of the plain model

Bases = dict[tuple[str, str, str], tuple[PreTrainedModel, PreTrainedTokenizerBase]]
"""Loaded base models and their tokenizers by path, revision and dtype."""


def base_key(settings: ModelConfig) -> tuple[str, str, str]:
    """What two models must agree on to share their base."""
    return settings.path, settings.revision, settings.dtype


def check_lora(name: str, settings: ModelConfig) -> None:
    """Raises `UserError` for an adapter that nothing would train, or without PEFT."""
    if settings.lora is None:
        return
    if settings.optimizer is None and not (Path(settings.path) / ADAPTER_FILE).is_file():
        raise UserError(
            f"models.{name}.lora: a model without an optimizer is frozen and trains no adapter; "
            f"remove lora, or set models.{name}.path to the folder of a trained adapter"
        )
    _peft(f"models.{name}.lora")


def adapted_model(
    name: str, settings: ModelConfig, bases: Bases, *, device: torch.device, seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with a fresh adapter on the base that `bases` has (or gets), and its tokenizer.

    The adapter has the base's dtype. A follows from `seed` and the model's name alone. Raises
    `UserError` for targets that the base does not have.
    """
    assert settings.lora is not None
    if base_key(settings) not in bases:
        model, tokenizer = load_pretrained(settings.path, settings.dtype, settings.revision)
        bases[base_key(settings)] = torch.nn.Module.to(model, device), tokenizer
    base, tokenizer = bases[base_key(settings)]
    entropy = np.random.SeedSequence([seed, zlib.crc32(name.encode())])
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(entropy.generate_state(1)[0]))
        model = add_adapter(base, settings.lora, f"models.{name}.lora")
    own = _adapter_config(model)
    own.base_model_name_or_path, own.revision = settings.path, settings.revision
    return model, tokenizer


def add_adapter(base: PreTrainedModel, lora: LoraConfig, where: str = "lora") -> PreTrainedModel:
    """A model that shares all tensors of `base` and has an adapter of its own, the only thing it
    trains. `base` itself has none and computes what it did. Raises `UserError` for wrong targets.
    """
    peft = _peft(where)
    targets = _targets(base, lora.targets, f"{where}.targets")
    alpha = int(lora.alpha) if float(lora.alpha).is_integer() else lora.alpha
    config = peft.LoraConfig(
        r=lora.rank, lora_alpha=alpha, target_modules=targets, task_type="CAUSAL_LM"
    )
    return _with_adapter(base, config)


def _with_adapter(base: PreTrainedModel, config: Any) -> PreTrainedModel:
    model = _sharing_copy(base)
    model.add_adapter(config, _ADAPTER)
    for layer in _layers(model).values():
        assert isinstance(layer.lora_dropout[_ADAPTER], torch.nn.Identity), "dropout"
    return model


def _sharing_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Modules and configuration anew, parameters and buffers the same."""
    tensors = [*model.parameters(), *model.buffers()]
    found = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    found.set_attn_implementation("sdpa")  # an engine's model may have another
    return found


def _targets(model: PreTrainedModel, chosen: list[str] | None, where: str) -> list[str]:
    """The layers to adapt as PEFT writes them: all of a last name (`q_proj`), or one whole path."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    # A tied head shares its W with the embedding: an adapter could not be merged into it alone.
    paths = [
        path
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    ]
    names = sorted({path.rpartition(".")[2] for path in paths})
    if chosen is None:
        return names
    for target in chosen:
        if not any(path == target or path.endswith(f".{target}") for path in paths):
            raise UserError(
                f"{where}: {type(model).__name__} has no linear layer {target!r} that can have an "
                f"adapter; it has {', '.join(names)} (or a path such as {paths[0]})"
            )
    if not chosen:
        raise UserError(f"{where}: is empty; leave it out for all, or choose of {', '.join(names)}")
    return chosen


@contextlib.contextmanager
def adapter_off(model: PreTrainedModel) -> Iterator[None]:
    """Within this block the model computes what its base computes."""
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()


def merged_weights(
    weights: Iterable[tuple[str, Tensor]], lora: LoraConfig
) -> Iterator[tuple[str, Tensor]]:
    """The plain model's weights, W + (alpha / rank) B A in place of each adapted W.

    `weights` are those of a model with an adapter by `state_dict` name, in that order. One tensor
    comes after the other and none is changed, so no rounding adds up in the base.
    """
    held: dict[str, Tensor] = {}  # of one layer: W, until its A and B have come
    for name, tensor in weights:
        path, side = _side(name)
        if name.endswith(".base_layer.weight"):
            held = {"W": tensor}
        elif side == "A":
            held["A"] = tensor
        elif side == "B":
            merged = _merged(held["W"], held["A"], tensor, lora.alpha / lora.rank)
            yield f"{path}.weight", merged
        else:
            yield name.replace(".base_layer.", "."), tensor


def _merged(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """W + scale B A in W's type, added up in float32 at least and rounded once."""
    wide = torch.promote_types(weight.dtype, torch.float32)
    return (weight.to(wide) + (b.to(wide) @ a.to(wide)) * scale).to(weight.dtype)


def adapter_weights(weights: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Of the weights of a model with an adapter those of the adapter, as PEFT's files call them."""
    return {
        f"{_PREFIX}{path}.lora_{side}.weight": tensor
        for name, tensor in weights
        for path, side in [_side(name)]
        if side
    }


def _side(name: str) -> tuple[str, str]:
    """(path of the layer, "A" or "B") of an adapter's weight; ("", "") of any other."""
    for side in "AB":
        if name.endswith(end := f".lora_{side}.{_ADAPTER}.weight"):
            return name.removesuffix(end), side
    return "", ""


def save_adapter(
    model: PreTrainedModel, name: str, folder: Path, weights: Mapping[str, Tensor] | None = None
) -> Path:
    """Write the adapter as `folder/name` in PEFT's format; returns that folder.

    It names the base by path and revision; vLLM and PEFT load it. `weights` are the whole
    `adapter_weights` of a model that is cut over several processes. Raises `OSError`.
    """
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    found = adapter_weights(model.state_dict().items()) if weights is None else weights
    saved = {name: tensor.contiguous() for name, tensor in found.items()}
    save_file(saved, path / WEIGHTS_FILE, {"format": "pt"})
    _adapter_config(model).save_pretrained(str(path))
    return path


@torch.no_grad()
def load_adapter(model: PreTrainedModel, folder: Path) -> None:
    """The inverse of `save_adapter`, into a model with an adapter of that shape. Raises `BadFile`:
    the model is unchanged then.
    """
    file, own = folder / WEIGHTS_FILE, adapter_weights(model.state_dict().items())
    try:
        saved = load_file(file)
    except (OSError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadFile(file, f"cannot be read ({reason})", fix="not an adapter?") from error
    fix = "were rank or targets changed?"
    if odd := sorted(saved.keys() ^ own.keys()):
        whose = "the file" if odd[0] in saved else "the model"
        raise BadFile(file, f"does not fit: only {whose} has {odd[0]}", fix=fix)
    for name, tensor in saved.items():
        if tensor.shape != own[name].shape:
            shapes = f"{list(tensor.shape)}, not {list(own[name].shape)}"
            raise BadFile(file, f"does not fit: {name} has shape {shapes}", fix=fix)
    for name, tensor in saved.items():
        own[name].copy_(tensor)


def load_merged(folder: Path, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A plain model from the folder of an adapter: its base with the adapter merged in.

    Raises `UserError` if the base is not to be had, or for an adapter of another kind than
    `save_adapter` writes (DoRA, an adapted head or embedding).
    """
    peft = _peft(f"{folder} holds an adapter, which")
    file = folder / ADAPTER_FILE
    try:
        config = peft.PeftConfig.from_pretrained(str(folder))
    except (OSError, TypeError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadFile(file, f"not the configuration of an adapter ({reason})") from error
    if not isinstance(config, peft.LoraConfig):
        raise BadFile(file, f"peft_type is {config.peft_type}, not LORA", fix="merge it first")
    if not config.base_model_name_or_path:
        raise BadFile(file, "does not name its base", fix="set base_model_name_or_path there")
    try:
        base, tokenizer = load_pretrained(config.base_model_name_or_path, dtype, config.revision)
    except UserError as error:
        raise UserError(f"{file}: base_model_name_or_path: {error}") from error
    config.inference_mode, config.lora_dropout = False, 0.0
    model = _with_adapter(base, config)
    layers = _layers(model)
    if odd := [path for path, layer in layers.items() if not _is_plain(model, layer)]:
        raise BadFile(file, f"adapts {odd[0]} in a way that cannot be merged", fix="merge it first")
    load_adapter(model, folder)
    with torch.no_grad():
        for layer in layers.values():
            weight = layer.get_base_layer().weight
            a, b = (side[_ADAPTER].weight for side in (layer.lora_A, layer.lora_B))
            weight.copy_(_merged(weight, a, b, layer.scaling[_ADAPTER]))
    base.requires_grad_(True)
    if (folder / "tokenizer_config.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    return base, tokenizer


def _is_plain(model: PreTrainedModel, layer: Any) -> bool:
    """Whether the layer computes W x + scale B A x and its W is no other layer's too."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    linear = isinstance(layer.get_base_layer(), torch.nn.Linear) and layer is not head
    return linear and not layer.lora_variant and not layer.lora_bias.get(_ADAPTER)


def _layers(model: PreTrainedModel) -> dict[str, Any]:
    """The adapted layers by path."""
    from peft.tuners.lora import LoraLayer

    return {path: layer for path, layer in model.named_modules() if isinstance(layer, LoraLayer)}


def _adapter_config(model: PreTrainedModel) -> Any:
    return model.peft_config[_ADAPTER]


def _peft(what: str) -> Any:
    try:
        import peft
    except ImportError as error:
        raise UserError(f"{what} needs {error.name}: pip install 'mas-gym[lora]'") from None
    return peft
