"""From messages to token ids and back: the part of answering that all engines with tokens share.

Ids never make a round trip: a prompt is encoded once, by the model's own chat template, and what
was sampled is decoded for the reader only.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mas_envs.episodes.schema import Ids, Message
from mas_envs.errors import UserError
from mas_envs.policies.base import Response
from mas_train.model_path import model_path

FIX = "give a folder with config.json, weights and tokenizer, or an id like Qwen/Qwen3-4B"


class Chat:
    """A tokenizer with its chat template, for the model called `name` in responses and messages.

    `template_args` go to the template; `template` is the hash of both. `stop_ids` end a response.
    Raises `UserError` for a tokenizer without a chat template.
    """

    def __init__(
        self,
        tokenizer: Any,
        stop_ids: Collection[int],
        name: str,
        template_args: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer, self.name = tokenizer, name
        self.stop_ids = frozenset(stop_ids)
        self.template_args = dict(template_args or {})
        self.template = template_hash(tokenizer, self.template_args)
        self.encode = functools.lru_cache(maxsize=4096)(self._encode)

    def _encode(self, messages: tuple[Message, ...]) -> Ids:
        """Prompt ids [P] of a conversation. Raises `UserError` if the template refuses it."""
        import jinja2

        try:
            ids = self.tokenizer.apply_chat_template(
                [{"role": message.role, "content": message.content} for message in messages],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
                **self.template_args,
            )
        except jinja2.TemplateError as error:
            roles = [message.role for message in messages]
            raise UserError(
                f"the chat template of {self.name} refuses messages with roles {roles}: {error}; "
                "change the prompt set or the template"
            ) from error
        array = np.asarray(ids, dtype=np.int32)
        array.flags.writeable = False  # shared by every response to these messages
        return array

    def response(
        self,
        prompt_ids: Ids,
        ids: Sequence[int],
        log_probs: Sequence[float],
        finish_reason: str,
        versions: Sequence[tuple[int, int]],
    ) -> Response:
        """What an engine answers. Only the final stop token is not text; all others stay visible.

        That there is one says the engine (`finish_reason` "stop"), never the id's value.
        """
        shown = ids[:-1] if finish_reason == "stop" else ids
        text = self.tokenizer.decode(
            list(shown), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return Response(
            text=str(text),
            finish_reason=finish_reason,
            prompt_ids=prompt_ids,
            ids=np.asarray(ids, dtype=np.int32),
            log_probs=np.asarray(log_probs, dtype=np.float32),
            model=self.name,
            versions=tuple(versions),
            template=self.template,
        )


def load_chat(
    path: str | Path,
    *,
    name: str,
    revision: str | None = None,
    template_args: Mapping[str, Any] | None = None,
) -> Chat:
    """The chat of a model's folder or Hugging Face id, without its weights. Raises `UserError`."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    found = checked_path(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(found, revision=revision)
        config = AutoConfig.from_pretrained(found, revision=revision)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"cannot load the tokenizer of {str(path)!r}: {reason}; {FIX}") from error
    try:
        generation = GenerationConfig.from_pretrained(found, revision=revision or "main")
    except OSError:  # many models have none
        generation = None
    return Chat(tokenizer, stop_ids(tokenizer, config, generation), name, template_args)


def checked_path(path: str | Path) -> str:
    """A folder that exists, or a Hugging Face id. Raises `UserError`."""
    found = model_path(path)
    if found.startswith(("/", ".", "~")) and not Path(found).is_dir():
        raise UserError(f"there is no folder {found!r}; {FIX}")
    return found


def template_hash(tokenizer: Any, template_args: Mapping[str, Any]) -> str:
    """16 hex digits of the chat template and its arguments. Raises `UserError` without one."""
    if not tokenizer.chat_template:
        raise UserError(
            f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; "
            "use an instruct or chat model, or set tokenizer.chat_template"
        )
    text = json.dumps([tokenizer.chat_template, dict(template_args)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stop_ids(tokenizer: Any, *configs: Any) -> frozenset[int]:
    """Every id that ends a response: the configurations', the tokenizer's, ChatML's end of turn.

    The configurations are the model's own and the one for generation, where there is one.
    """
    found: set[int] = set()
    for one in (*configs, tokenizer):
        ids = getattr(one, "eos_token_id", None)
        found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    end_of_turn = tokenizer.get_vocab().get("<|im_end|>")
    return frozenset(found if end_of_turn is None else found | {end_of_turn})
