"""What a Hugging Face model and tokenizer tell an engine, and how weights get into the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from mas_envs.errors import UnknownName, UserError
from mas_train.model_path import model_path


def load_pretrained(
    path: str | Path, dtype: str = "float32", revision: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model (on the CPU) and tokenizer of a folder or a Hugging Face id. Raises `UserError`."""
    torch_dtype = getattr(torch, dtype, None)
    if not isinstance(torch_dtype, torch.dtype):
        raise UserError(f"dtype {dtype!r} is unknown; use float32, bfloat16 or float16")
    fix = "give a folder with config.json, weights and tokenizer, or an id like Qwen/Qwen3-4B"
    found = model_path(path)
    if found.startswith(("/", ".", "~")) and not Path(found).is_dir():
        raise UserError(f"there is no folder {found!r}; {fix}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(found, revision=revision)
        model = AutoModelForCausalLM.from_pretrained(found, revision=revision, dtype=torch_dtype)
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"cannot load the model {str(path)!r}: {reason}; {fix}") from error
    return model, tokenizer


def template_hash(tokenizer: PreTrainedTokenizerBase, template_args: Mapping[str, Any]) -> str:
    """16 hex digits of the chat template and its arguments. Raises `UserError` without one."""
    if not tokenizer.chat_template:
        raise UserError(
            f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; "
            "use an instruct or chat model, or set tokenizer.chat_template"
        )
    text = json.dumps([tokenizer.chat_template, dict(template_args)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a response: the model's, the tokenizer's, and ChatML's end of turn."""
    found: set[int] = set()
    configured = getattr(model.generation_config, "eos_token_id", None)
    for ids in (configured, model.config.eos_token_id, tokenizer.eos_token_id):
        found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    end_of_turn = tokenizer.get_vocab().get("<|im_end|>")
    return frozenset(found if end_of_turn is None else found | {end_of_turn})


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
    given, own = dict(weights), model.state_dict()
    for name, tensor in given.items():
        if name not in own:
            raise UnknownName("weight", name, own, "weight push")
        if tensor.shape != own[name].shape:
            shapes = f"{list(tensor.shape)}, but the engine's has {list(own[name].shape)}"
            raise UserError(f"weight push: {name} has shape {shapes}")
    for names in _names_by_tensor(own):
        found = [name for name in names if name in given]
        if not found:
            raise UserError(f"weight push: {names[0]} is missing; push the whole state_dict")
        for name in found[1:]:
            one, other = given[name], given[found[0]]
            # One tensor under two names needs no look (and with a NaN does not equal itself).
            if one.data_ptr() != other.data_ptr() and not torch.equal(one, other):
                raise UserError(f"weight push: {name} differs from {found[0]}, to which it is tied")
    with torch.no_grad():
        for name, tensor in given.items():
            own[name].copy_(tensor)


def _names_by_tensor(state: Mapping[str, torch.Tensor]) -> list[list[str]]:
    names: dict[int, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(tensor.data_ptr(), []).append(name)
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
