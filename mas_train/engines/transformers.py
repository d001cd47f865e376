"""The engine that runs in this process: a Hugging Face model with continuous batching.

Requests join and leave at decode-step boundaries (see stepped.py). Every row draws from its own
random stream, so on one thread two equal runs give equal bits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from mas_envs.episodes.schema import LogProbs
from mas_train.engines.chat import Chat, stop_ids
from mas_train.engines.hf_model import (
    apply_head,
    check_model,
    copy_weights,
    load_pretrained,
)
from mas_train.engines.kv_cache import ATTENTION, SlotCache
from mas_train.engines.lean_decode import can_decode, decode
from mas_train.engines.sampling import sample, uniforms
from mas_train.engines.slots import Row, admit, context_batches
from mas_train.engines.stepped import SteppedEngine
from mas_train.engines.threads import threads_for


class TransformersEngine(SteppedEngine):
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
        name = name or str(model.config.name_or_path) or type(model).__name__
        stops = stop_ids(tokenizer, model.config, model.generation_config)
        length = max_model_len or int(model.config.max_position_embeddings)
        super().__init__(Chat(tokenizer, stops, name, template_args), version, length, max_rows)
        model.train(False)
        self.model, self.tokenizer = model, tokenizer
        self.prefill_tokens = prefill_tokens
        check_model(model, tokenizer, length)
        model.set_attn_implementation(ATTENTION)
        self._cache = SlotCache()
        self._rows: list[Row] = []
        self._parameters = model.num_parameters()
        self._lean = can_decode(model)

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

    # ---- one step -------------------------------------------------------------------------------

    def _prepare(self, row: Row) -> None:
        row.draws = uniforms(row.request.seed, row.room)

    def _running(self) -> list[Row]:
        return self._rows

    def _drop(self) -> None:
        self._rows = []
        self._cache.clear()

    async def _step(self) -> None:
        self._advance()

    @torch.inference_mode()
    def _advance(self) -> None:
        """Admit and prefill what waits, then sample one more token for every row."""
        started = time.perf_counter()
        admitted = self._admit()
        if admitted:
            self._prefill(admitted)
        if any(not row.future.done() for row in self._rows):
            positions = torch.tensor([len(row.prompt_ids) + len(row.ids) - 1 for row in self._rows])
            last = torch.tensor([row.ids[-1] for row in self._rows])
            positions, last = positions.to(self.model.device), last.to(self.model.device)
            with threads_for(len(self._rows), self._parameters):
                self._sample(self._rows, self._decoded(last, positions))
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
            padded = len(contexts) * max(map(len, contexts))
            with threads_for(padded, self._parameters):
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

    def _decoded(self, last: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Last hidden states [n, d] of each row's last token [n] at its position [n]."""
        mask = self._cache.begin(positions)
        if self._lean:
            return decode(self.model, last, positions, self._cache, mask)
        return self._hidden(
            last[:, None],
            attention_mask=mask,
            position_ids=positions[:, None],
            past_key_values=self._cache,
        )[:, 0]

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
                self._finish(row, "stop")
            elif len(row.ids) == row.room:
                self._finish(row, "length")

    # ---- weights --------------------------------------------------------------------------------

    def load_weights(
        self, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]], version: int
    ) -> None:
        """See `Engine`. Rows in flight keep their tokens; their context is computed anew."""
        copy_weights(self.model, weights)
        self._pending += [row for row in self._rows if not row.future.done()]
        self._drop()
        self.version = version

    @torch.inference_mode()
    def probe(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> LogProbs:
        """See `Engine`."""
        sequence = torch.tensor([[*map(int, prompt_ids), *map(int, ids)]], device=self.model.device)
        kept = {"logits_to_keep": len(ids) + 1, "use_cache": False}
        with threads_for(sequence.shape[1], self._parameters):
            logits = self.model(input_ids=sequence, **kept).logits
        log_probs = torch.log_softmax(_wide(logits[0, :-1]), dim=-1)
        taken = log_probs.gather(1, sequence[0, len(prompt_ids) :, None])[:, 0]
        return taken.to(torch.float32).cpu().numpy()


def _wide(logits: torch.Tensor) -> torch.Tensor:
    """Logits in float32 (float64 stays): half precision would lose the log-probs."""
    return logits if logits.dtype == torch.float64 else logits.float()
