"""An engine that says nothing sensible at a given pace: for measuring all the rest.

It draws the end of a response with probability 1 / `mean_tokens` and any other token with equal
probability, whatever the prompt and the temperature; the log-probs are those of that policy. A step
samples one token for every row and takes `max_rows / tokens_per_second`, however few rows there
are, while episodes go on, as on a GPU. `act` needs no torch.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mas_envs.episodes.schema import LogProbs
from mas_envs.errors import UserError
from mas_train.engines.chat import Chat, checked_path, load_chat
from mas_train.engines.slots import Row, admit
from mas_train.engines.stepped import SteppedEngine

if TYPE_CHECKING:
    import torch

Fault = Literal["stale cache", "forgotten head"]
"""What a real engine may get wrong at a weight update; see `FakeEngine`."""


class FakeEngine(SteppedEngine):
    """An `Engine` (see base.py) that simulates one.

    `path` gives the tokenizer; without one, text is its bytes. Weights go into a real model, loaded
    from there when they first come, and `probe` asks that one, so it agrees with a learner. `fault`
    makes it err as real engines do: "stale cache" keeps a prompt's keys and values over an update,
    "forgotten head" updates embeddings but not the output layer that is tied to them.
    """

    loop_turns = 0

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        name: str = "",
        version: int = 0,
        dtype: str = "float32",
        revision: str | None = None,
        max_model_len: int | None = None,
        max_rows: int = 256,
        template_args: Mapping[str, Any] | None = None,
        tokens_per_second: float = 20_000.0,
        mean_tokens: float = 64.0,
        fault: Fault | None = None,
    ) -> None:
        if path is None:
            chat = Chat(Bytes(), [Bytes.END], name or "fake", template_args)
        else:
            chat = load_chat(
                path, name=name or str(path), revision=revision, template_args=template_args
            )
        super().__init__(chat, version, max_model_len or 4096, max_rows)
        self.path, self.dtype, self.revision, self.fault = path, dtype, revision, fault
        self.step_s = max_rows / tokens_per_second
        words = set(range(len(chat.tokenizer))) - self.stop_ids
        self._words, self._ends = np.array(sorted(words)), np.array(sorted(self.stop_ids))
        self._end_share = 1.0 / mean_tokens
        self._rows: list[Row] = []
        self._step_ends = 0.0
        self._model: Any = None
        self._kept: dict[tuple[int, ...], Any] = {}  # prompt → its keys and values

    # ---- sampling -------------------------------------------------------------------------------

    def _prepare(self, row: Row) -> None:
        """Draw the whole response by inverting the distribution; `room` becomes its length."""
        if not self._busy():
            self._step_ends = time.perf_counter()
        draws = np.random.default_rng(row.request.seed).random(row.room)
        share = self._end_share
        ends = np.flatnonzero(draws < share)
        length = int(ends[0]) + 1 if len(ends) else row.room
        rest = (draws[:length] - share) / (1 - share)
        ids = self._words[(rest * len(self._words)).astype(np.int64)]
        log_probs = np.full(length, math.log((1 - share) / len(self._words)))
        if len(ends):
            ids[-1] = self._ends[int(draws[length - 1] / share * len(self._ends))]
            log_probs[-1] = math.log(share / len(self._ends))
        row.ids, row.log_probs, row.room = ids.tolist(), log_probs.tolist(), length
        row.draws = np.zeros(1)  # how many tokens are out

    def _running(self) -> list[Row]:
        return self._rows

    def _drop(self) -> None:
        self._rows = []

    async def _step(self) -> None:
        _, _, self._pending = admit(self._rows, self._pending, self.max_rows)
        if not self._rows:
            return
        started = time.perf_counter()
        rows = list(self._rows)
        # From the end of the last step, not from now: what episodes did meanwhile costs no time.
        self._step_ends = max(self._step_ends + self.step_s, started)
        await asyncio.sleep(self._step_ends - started)
        if self._paused:
            return
        for row in rows:
            if not row.future.done():
                self._advance(row)
        self.stats.steps += 1
        self.stats.row_steps += len(rows)
        self.stats.seconds += time.perf_counter() - started

    def _advance(self, row: Row) -> None:
        out = int(row.draws[0])
        if not out:
            self.stats.prompt_tokens += len(row.prompt_ids)
        if not row.versions or row.versions[-1][1] != self.version:
            row.versions.append((out, self.version))
        row.draws[0] = out + 1
        self.stats.tokens += 1
        if out + 1 == row.room:
            self._finish(row, "stop" if row.ids[-1] in self.stop_ids else "length")

    # ---- weights --------------------------------------------------------------------------------

    def load_weights(
        self, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]], version: int
    ) -> None:
        """See `Engine`. Names and shapes must be those of the model at `path`."""
        import torch

        from mas_train.engines.hf_model import copy_weights

        model = self._loaded()
        head = model.get_output_embeddings()
        before = head.weight.detach().clone()
        copy_weights(model, weights)
        if self.fault == "forgotten head":
            head.weight = torch.nn.Parameter(before)
        if self.fault != "stale cache":
            self._kept.clear()
        self.version = version

    def probe(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> LogProbs:
        """See `Engine`; of the weights that were loaded, not of what is sampled."""
        import copy

        import torch

        model, prompt, rest = self._loaded(), tuple(map(int, prompt_ids)), list(map(int, ids))
        with torch.inference_mode():
            if prompt not in self._kept:
                first = model(input_ids=torch.tensor([prompt]), use_cache=True)
                self._kept[prompt] = first.past_key_values, first.logits[0, -1:]
            past, last = self._kept[prompt]
            logits = last
            if len(rest) > 1:
                more = model(
                    input_ids=torch.tensor([rest[:-1]]), past_key_values=copy.deepcopy(past)
                )
                logits = torch.cat([last, more.logits[0]])
            log_probs = torch.log_softmax(logits.float(), -1)
            taken = log_probs.gather(1, torch.tensor(rest)[:, None])[:, 0]
        return taken.numpy()

    def _loaded(self) -> Any:
        from mas_train.engines.hf_model import load_pretrained

        if self._model is None:
            if self.path is None:
                raise UserError("engine 'fake' has no model to put weights into; give it a path")
            model, _ = load_pretrained(checked_path(self.path), self.dtype, self.revision)
            self._model = model.train(False)
        return self._model


class Bytes:
    """A tokenizer that needs no files: UTF-8 bytes, and `END` after each message."""

    END = 256
    chat_template = "role, newline, content, end"
    name_or_path = "bytes"

    def __len__(self) -> int:
        return self.END + 1

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], **_: Any) -> list[int]:
        """Ids of the messages, and of the role that answers them."""
        ids: list[int] = []
        for message in messages:
            ids += f"{message['role']}\n{message['content']}".encode(errors="replace")
            ids.append(self.END)
        return [*ids, *b"assistant\n"]

    def decode(self, ids: Iterable[int], **_: Any) -> str:
        """The text of the bytes among the ids."""
        return bytes(one for one in ids if one < self.END).decode(errors="replace")
