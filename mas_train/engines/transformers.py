"""The engine that runs in this process: a Hugging Face model with continuous batching.

Requests join and leave at decode-step boundaries. Everything runs on the event loop's own thread:
a task steps the model and hands the loop back a fixed number of times in between, so what is
admitted when depends on the episodes only, never on the clock. Every row draws from its own random
stream, so on one thread two equal runs give equal bits.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from mas_envs.episodes.schema import Ids, LogProbs, Message
from mas_envs.errors import MachineryError, UserError
from mas_envs.policies.base import Request, Response
from mas_train.engines.base import Stats
from mas_train.engines.hf_model import (
    apply_head,
    check_model,
    copy_weights,
    load_pretrained,
    stop_ids,
    template_hash,
)
from mas_train.engines.kv_cache import ATTENTION, SlotCache
from mas_train.engines.sampling import sample, uniforms
from mas_train.engines.slots import Row, admit, context_batches

# Between two steps the loop runs this many times: enough for an episode whose turn has just ended
# to call an in-process tool and ask for its next turn, so that it joins the very next step.
LOOP_TURNS = 8


class TransformersEngine:
    """An `Engine` (see base.py) over a model and tokenizer that it owns from then on.

    `max_model_len` bounds prompt plus response in tokens (default: the model's own limit),
    `max_rows` the requests sampled at once, `prefill_tokens` the padded tokens of one prompt
    batch. `template_args` go to the chat template. `name` is the `model` of every response.
    Raises `UserError` if the model's attention or head is of a kind this engine cannot serve.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str = "",
        version: int = 0,
        max_model_len: int | None = None,
        max_rows: int = 512,
        prefill_tokens: int = 8192,
        template_args: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name or str(model.config.name_or_path) or type(model).__name__
        self.version = version
        self.stats = Stats()
        model.train(False)
        self.model, self.tokenizer = model, tokenizer
        self.max_model_len = max_model_len or int(model.config.max_position_embeddings)
        self.max_rows, self.prefill_tokens = max_rows, prefill_tokens
        self.template_args = dict(template_args or {})
        self.template = template_hash(tokenizer, self.template_args)
        self.stop_ids = stop_ids(model, tokenizer)
        self._encode = functools.lru_cache(maxsize=4096)(self._encode_uncached)
        check_model(model, tokenizer, self.max_model_len)
        model.set_attn_implementation(ATTENTION)
        self._cache = SlotCache()
        self._rows: list[Row] = []
        self._pending: list[Row] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._paused = self._closed = False

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        dtype: str = "float32",
        revision: str | None = None,
        device: str = "cpu",
        **options: Any,
    ) -> TransformersEngine:
        """Load a folder or a Hugging Face id; `options` are the constructor's.

        Raises `UserError` when there is no such model or no tokenizer with a chat template.
        """
        model, tokenizer = load_pretrained(path, dtype, revision)
        torch.nn.Module.to(model, device)
        return cls(model, tokenizer, **{"name": str(path), **options})

    # ---- asking ---------------------------------------------------------------------------------

    async def act(self, request: Request) -> Response:
        """Sample one response; cancelling the call frees its row at the next step.

        `request.deadline` is the caller's to enforce, by cancelling: no clock is read here.
        Raises `MachineryError` if the model fails, `UserError` on senseless sampling parameters.
        """
        if self._closed:
            raise MachineryError(f"engine {self.name} is closed")
        prompt_ids = self._encode(request.messages)
        self.stats.requests += 1
        room = min(request.sampling.max_tokens, self.max_model_len - len(prompt_ids))
        loop = asyncio.get_running_loop()
        self._adopt(loop)
        row = Row(request, loop.create_future(), prompt_ids, room, np.empty(0))
        if room < 1:
            return self._response(row, "overflow")
        row.draws = uniforms(request.seed, room)
        self._pending.append(row)
        self._wake(loop)
        return await row.future

    def _encode_uncached(self, messages: tuple[Message, ...]) -> Ids:
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

    def _response(self, row: Row, finish_reason: str) -> Response:
        ids = row.ids
        # Only the final stop token is not text; every other token stays visible.
        shown = ids[:-1] if finish_reason == "stop" else ids
        return Response(
            text=str(
                self.tokenizer.decode(
                    shown, skip_special_tokens=False, clean_up_tokenization_spaces=False
                )
            ),
            finish_reason=finish_reason,
            prompt_ids=row.prompt_ids,
            ids=np.asarray(ids, dtype=np.int32),
            log_probs=np.asarray(row.log_probs, dtype=np.float32),
            model=self.name,
            versions=tuple(row.versions),
            template=self.template,
        )

    # ---- the event loop -------------------------------------------------------------------------

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Move to a new event loop; nothing of the last one can be running any more."""
        if self._loop is loop:
            return
        if self._loop is not None and self._loop.is_running():
            raise MachineryError(f"engine {self.name} is in use on another event loop")
        self._fail("moved to another event loop")
        self._loop, self._task = loop, None

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._paused and (self._task is None or self._task.done()):
            self._task = loop.create_task(self._decode(), name=f"decode {self.name}")

    async def _decode(self) -> None:
        """Step until nothing is left to sample; `act` starts the next such task."""
        try:
            while True:
                for _ in range(LOOP_TURNS):
                    await asyncio.sleep(0)
                if self._paused or not (self._rows or self._pending):
                    return
                self._step()
        except BaseException as error:  # cancellation too: nobody may wait for ever
            fix = ""
            if isinstance(error, torch.OutOfMemoryError):
                fix = "; lower max_rows, max_tokens, max_model_len or prefill_tokens"
            self._fail(f"{type(error).__name__}: {error}{fix}", error)
            if not isinstance(error, Exception):
                raise

    def _fail(self, reason: str, cause: BaseException | None = None) -> None:
        """Drop all work; whoever still waits for a row gets a `MachineryError`."""
        rows = [*self._rows, *self._pending]
        self._rows, self._pending = [], []
        self._cache.clear()
        for row in rows:
            if not (row.future.done() or row.future.get_loop().is_closed()):
                failure = MachineryError(f"engine {self.name}: {reason}")
                failure.__cause__ = cause
                row.future.set_exception(failure)

    # ---- one step -------------------------------------------------------------------------------

    @torch.inference_mode()
    def _step(self) -> None:
        """Admit and prefill what waits, then sample one more token for every row."""
        started = time.perf_counter()
        admitted = self._admit()
        if admitted:
            self._prefill(admitted)
        if any(not row.future.done() for row in self._rows):
            positions = torch.tensor([len(row.prompt_ids) + len(row.ids) - 1 for row in self._rows])
            last = torch.tensor([row.ids[-1] for row in self._rows])
            positions, last = positions.to(self.model.device), last.to(self.model.device)
            mask = self._cache.begin(positions)
            hidden = self._hidden(
                last[:, None],
                attention_mask=mask,
                position_ids=positions[:, None],
                past_key_values=self._cache,
            )
            self._sample(self._rows, hidden[:, 0])
            self.stats.steps += 1
            self.stats.row_steps += len(self._rows)
        self.stats.seconds += time.perf_counter() - started

    def _admit(self) -> list[int]:
        """Let waiting rows in; the slots they got."""
        admitted, moves, self._pending = admit(self._rows, self._pending, self.max_rows)
        self._cache.move(moves)
        return admitted

    def _prefill(self, admitted: Sequence[int]) -> None:
        """Compute the admitted rows' contexts, each different one once, and sample a token."""
        for contexts in context_batches(self._rows, admitted, self.prefill_tokens):
            self._prefill_batch(contexts)

    def _prefill_batch(self, contexts: Mapping[tuple[int, ...], list[int]]) -> None:
        # Padding on the right needs no mask: attention is causal, and decoding overwrites it.
        lengths = [len(context) for context in contexts]
        longest = max(lengths)
        padded = [[*context, *[0] * (longest - len(context))] for context in contexts]
        past = DynamicCache()
        hidden = self._hidden(torch.tensor(padded).to(self.model.device), past_key_values=past)
        last = hidden[range(len(lengths)), [length - 1 for length in lengths]]
        index = [i for i, slots in enumerate(contexts.values()) for _ in slots]
        slots = [slot for slots in contexts.values() for slot in slots]
        self._cache.reserve(len(self._rows), longest + 1, like=past)
        self._cache.write(slots, past, index)
        self.stats.prompt_tokens += sum(lengths)
        self._sample([self._rows[slot] for slot in slots], last[index])

    def _hidden(self, input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
        """Last hidden states [n, T, d] of input ids [n, T]."""
        hidden: torch.Tensor = self.model.base_model(
            input_ids=input_ids, use_cache=True, **options
        ).last_hidden_state
        return hidden

    def _sample(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        """Append one token to each row from its hidden state [n, d]; finish the rows that end."""
        logits = _wide(apply_head(self.model, hidden))
        samplings = [row.request.sampling for row in rows]
        # A row that ended in this step's prefill is still here and draws nothing new.
        draws = [row.draws[len(row.ids)] if len(row.ids) < row.room else 0.0 for row in rows]
        ids, log_probs = sample(logits, samplings, draws)
        if logits[:, 0].isnan().any() or not torch.isfinite(log_probs).all():
            raise FloatingPointError(f"logits are not finite at weights version {self.version}")
        for row, token, log_prob in zip(rows, ids.tolist(), log_probs.tolist(), strict=True):
            if row.future.done():
                continue
            if not row.versions or row.versions[-1][1] != self.version:
                row.versions.append((len(row.ids), self.version))
            row.ids.append(token)
            row.log_probs.append(log_prob)
            self.stats.tokens += 1
            if token in self.stop_ids:
                row.future.set_result(self._response(row, "stop"))
            elif len(row.ids) == row.room:
                row.future.set_result(self._response(row, "length"))

    # ---- weights --------------------------------------------------------------------------------

    def load_weights(
        self, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]], version: int
    ) -> None:
        """See `Engine`. Rows in flight keep their tokens; their context is computed anew."""
        copy_weights(self.model, weights)
        self._pending += [row for row in self._rows if not row.future.done()]
        self._rows = []
        self._cache.clear()
        self.version = version

    @torch.inference_mode()
    def probe(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> LogProbs:
        """See `Engine`."""
        sequence = torch.tensor([[*map(int, prompt_ids), *map(int, ids)]], device=self.model.device)
        logits = self.model(input_ids=sequence, logits_to_keep=len(ids) + 1, use_cache=False).logits
        log_probs = torch.log_softmax(_wide(logits[0, :-1]), dim=-1)
        taken = log_probs.gather(1, sequence[0, len(prompt_ids) :, None])[:, 0]
        return taken.to(torch.float32).cpu().numpy()

    def pause(self) -> None:
        """See `Engine`."""
        self._paused = True

    def resume(self) -> None:
        """See `Engine`."""
        self._paused = False
        if self._loop is not None and (self._rows or self._pending):
            self._wake(self._loop)

    def close(self) -> None:
        """See `Engine`."""
        self._closed = True
        self._fail("closed")


def _wide(logits: torch.Tensor) -> torch.Tensor:
    """Logits in float32 (float64 stays): half precision would lose the log-probs."""
    return logits if logits.dtype == torch.float64 else logits.float()
