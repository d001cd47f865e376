"""What a Hugging Face model and tokenizer tell an engine, and how weights get into the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from mas_envs.errors import UnknownName, UserError
from mas_train.engines.chat import FIX, checked_path

ADAPTER_FILE = "adapter_config.json"
"""What tells the folder of a low-rank adapter from that of a model."""


def load_pretrained(
    path: str | Path, dtype: str = "float32", revision: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model (on the CPU) and tokenizer of a folder or a Hugging Face id. Raises `UserError`.

    The folder of a low-rank adapter gives its base with the adapter merged in.
    """
    torch_dtype = getattr(torch, dtype, None)
    if not isinstance(torch_dtype, torch.dtype):
        raise UserError(f"dtype {dtype!r} is unknown; use float32, bfloat16 or float16")
    found = checked_path(path)
    if (Path(found) / ADAPTER_FILE).is_file():
        from mas_train.learner.lora import load_merged

        return load_merged(Path(found), dtype)
    try:
        tokenizer = AutoTokenizer.from_pretrained(found, revision=revision)
        model = AutoModelForCausalLM.from_pretrained(found, revision=revision, dtype=torch_dtype)
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"cannot load the model {str(path)!r}: {reason}; {FIX}") from error
    return model, tokenizer


def check_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, length: int) -> None:
    """Raises `UserError` for a model that `TransformersEngine` cannot serve exactly.

    It decodes with full attention over at most `length` tokens and applies the output embedding to
    the last hidden state itself.
    """
    kind, config = type(model).__name__, model.config
    if length > config.max_position_embeddings:
        limit = config.max_position_embeddings
        raise UserError(f"max_model_len is {length}; {kind} has only {limit} positions")
    if len(tokenizer) > (size := _vocabulary(model)):
        raise UserError(f"the tokenizer has {len(tokenizer)} tokens; {kind} has only {size}")
    window = getattr(config, "sliding_window", None)
    unstated = ["sliding_attention" if window else "full_attention"]
    kinds = set(getattr(config, "layer_types", None) or unstated)
    if kinds - {"full_attention", "sliding_attention"}:
        raise UserError(f"{kind} has layers of {sorted(kinds)}; this engine serves full attention")
    if window and window < length and "sliding_attention" in kinds:
        raise UserError(f"{kind} attends to {window} tokens; set max_model_len to at most {window}")
    ids = torch.arange(min(8, size), device=model.device)[None]
    with torch.inference_mode():
        logits = apply_head(model, model.base_model(input_ids=ids).last_hidden_state)
        if not logits.isfinite().all():
            raise UserError(f"{kind} computes logits that are not finite; its weights are damaged")
        if not torch.allclose(logits, model(input_ids=ids).logits, rtol=1e-3, atol=1e-3):
            raise UserError(f"{kind} changes its logits after the head; it cannot be served")


def apply_head(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """Logits [..., V] of hidden states [..., d]."""
    logits: torch.Tensor = model.get_output_embeddings()(hidden)  # type: ignore[no-untyped-call]
    return logits


def copy_weights(
    model: PreTrainedModel,
    weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
) -> None:
    """Copy all weights into the model by `state_dict` name, whatever their dtype and device.

    Of names that are tied to one tensor (`lm_head.weight` in small Qwens) one suffices.
    Raises `UserError` on an unknown or missing name, another shape or a broken tie; the model is
    unchanged then.
    """
    given, own = checked_weights(model, weights), model.state_dict()
    with torch.no_grad():
        for name, tensor in given.items():
            own[name].copy_(tensor)


def checked_weights(
    model: PreTrainedModel,
    weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
) -> dict[str, torch.Tensor]:
    """The weights by name, if they are all of the model's (which may lie on the meta device).

    Raises `UserError` as `copy_weights` does.
    """
    given, own = dict(weights), model.state_dict(keep_vars=True)
    for name, tensor in given.items():
        if name not in own:
            raise UnknownName("weight", name, own, "weight push")
        if tensor.shape != own[name].shape:
            shapes = f"{list(tensor.shape)}, but the engine's has {list(own[name].shape)}"
            raise UserError(f"weight push: {name} has shape {shapes}")
    for names in tied_names(own):
        found = [name for name in names if name in given]
        if not found:
            raise UserError(f"weight push: {names[0]} is missing; push the whole state_dict")
        for name in found[1:]:
            one, other = given[name], given[found[0]]
            # One tensor under two names needs no look (and with a NaN does not equal itself).
            if one.data_ptr() != other.data_ptr() and not torch.equal(one, other):
                raise UserError(f"weight push: {name} differs from {found[0]}, to which it is tied")
    return given


def tied_names(state: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """The names of each tensor of a `state_dict(keep_vars=True)`; tied ones share one."""
    names: dict[int, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(id(tensor), []).append(name)
    return list(names.values())


def _vocabulary(model: PreTrainedModel) -> int:
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, torch.Tensor)
    return weight.shape[0]


def quiet() -> None:
    """Switch off Hugging Face's progress bars and notices, for command lines with their own."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
