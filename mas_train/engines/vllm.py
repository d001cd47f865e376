"""vLLM as an engine: paged attention and continuous batching, on a GPU (on a CPU for tests).

`VLLMEngine` steps vLLM in this process: requests join at step boundaries, in order, and new weights
are handed over in memory. How vLLM is set up is in vllm_settings, what a process of its own takes
in vllm_process; no other file imports vllm.
"""

from __future__ import annotations

import itertools
import threading
import time
from asyncio import to_thread
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from mas_envs.episodes.schema import LogProbs
from mas_envs.errors import MachineryError, UserError
from mas_train.engines.adapter import Adapter, Loaded
from mas_train.engines.chat import checked_path, load_chat
from mas_train.engines.hf_model import checked_weights, tied_names
from mas_train.engines.slots import Row
from mas_train.engines.stepped import SteppedEngine
from mas_train.engines.vllm_process import how_it_ended, weight_files
from mas_train.engines.vllm_settings import is_on_cpu, next_is, sampled, sampling_params, start

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput

# vLLM's process groups are those of the process, and what one engine shuts down (also when it is
# garbage collected) is gone for all: they are kept, and shut down with the last one.
_OPEN: set[VLLMEngine] = set()
_CLOSED: list[Any] = []


class VLLMEngine(SteppedEngine):
    """An `Engine` (see base.py) over vLLM's copy of the model at `path`.

    `max_model_len` bounds prompt plus response in tokens (None: the model's own limit), `max_rows`
    the requests sampled at once. `memory` is the share of the GPU for weights, keys and values;
    `sleep` lets `sleep()` free it. With `adapters` > 0 so many models may share these weights, each
    with an `adapter()` of rank `lora_rank` at most. With `overlap` (None: on a GPU) a step runs in
    a thread while episodes go on; they then join one step later, and admission follows the clock.
    With `own_process` (None: if it sleeps; vLLM frees memory for one engine a process) the model
    runs in another process, as the workers of `tensor_parallel` > 1 do; then new weights go through
    shared memory. A process that ends by itself ends the engine: every call is a `MachineryError`.

    Raises `UserError` if vLLM is not installed or of another version, refuses the model, or has
    another vocabulary.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str = "",
        version: int = 0,
        dtype: str = "float32",
        revision: str | None = None,
        max_model_len: int | None = None,
        max_rows: int = 256,
        template_args: Mapping[str, Any] | None = None,
        memory: float = 0.45,
        tensor_parallel: int = 1,
        eager: bool = False,
        sleep: bool = True,
        adapters: int = 0,
        lora_rank: int = 16,
        overlap: bool | None = None,
        own_process: bool | None = None,
    ) -> None:
        found, on_cpu = checked_path(path), is_on_cpu()
        name = name or str(path)
        chat = load_chat(path, name=name, revision=revision, template_args=template_args)
        self._weights = weight_shapes(found, revision)
        size = self._weights.get_input_embeddings().weight.shape[0]
        if len(chat.tokenizer) > size:
            raise UserError(
                f"the tokenizer of {str(path)!r} has {len(chat.tokenizer)} tokens; its model has "
                f"only {size}"
            )
        self._sleeps, self._asleep = sleep and not on_cpu, False
        options: dict[str, Any] = {
            "model": found, "revision": None if Path(found).is_dir() else revision, "dtype": dtype,
            "max_model_len": max_model_len, "max_num_seqs": max_rows,
            "gpu_memory_utilization": memory, "tensor_parallel_size": tensor_parallel,
            "enforce_eager": eager or on_cpu, "enable_sleep_mode": self._sleeps,
        }  # fmt: skip
        if adapters:  # of each the version in use and the one before it
            rank = max(8, 1 << (lora_rank - 1).bit_length())  # vLLM takes powers of two from 8 up
            options |= {"enable_lora": True, "max_loras": 2 * adapters, "max_lora_rank": rank}
        self._own_process = self._sleeps if own_process is None else own_process
        self._engine = start(path, options, on_cpu, self._own_process)
        length = int(self._engine.model_config.max_model_len)
        super().__init__(chat, version, length, max_rows)
        self._overlap = not on_cpu if overlap is None else overlap
        self._in_files = tensor_parallel > 1 or self._own_process
        self._held = False
        self._lock = threading.RLock()  # vLLM's engine is for one thread at a time
        if self._overlap:
            self.loop_turns = 0
        self._engine.set_weight_version(str(version))
        self.lora_rank = lora_rank
        self._adapters: set[Adapter] = set()
        self._rows: dict[str, Row] = {}
        self._numbers = itertools.count()
        if not self._own_process:
            _OPEN.add(self)

    # ---- adapters -------------------------------------------------------------------------------

    def adapter(self, name: str, alpha: float) -> Adapter:
        """An engine for the model `name`, which shares these weights (see adapter.py)."""
        made = Adapter(self, name, alpha)
        self._adapters.add(made)
        return made

    def release(self, adapter: Adapter) -> None:
        """Close, if this was the last open adapter."""
        self._adapters.discard(adapter)
        if not self._adapters:
            self.close()

    def add_adapter(self, name: str, number: int, folder: Path) -> Any:
        """vLLM's request for an adapter whose files are in `folder`; it has read them."""
        from vllm.lora.request import LoRARequest

        request = LoRARequest(name, number, str(folder))
        with self._calling():
            self._wake_up()
            self._engine.add_lora(request)
        return request

    # ---- vLLM's own process ---------------------------------------------------------------------

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """One thread at a time; raises `MachineryError` if vLLM's process has ended."""
        from vllm.v1.engine.exceptions import EngineDeadError

        with self._lock:
            try:
                yield
            except EngineDeadError as error:
                reason = how_it_ended(self._engine)
                raise MachineryError(f"engine {self.name}: {reason}") from error

    def _hold(self, held: bool) -> None:
        """Stop vLLM's own process between two steps, or let it go on: it samples unasked."""
        if self._own_process and self._held != held:
            core = self._engine.engine_core
            if held:
                core.call_utility("pause_scheduler", "keep", False)
            else:
                core.call_utility("resume_scheduler")
            self._held = held

    @contextmanager
    def _holding(self, held: bool) -> Iterator[None]:
        """`_hold`, and afterwards back to what was."""
        before = self._held
        self._hold(held)
        try:
            yield
        finally:
            self._hold(before)

    def pause(self) -> None:
        """See `Engine`."""
        super().pause()
        if self._rows:
            with self._calling():
                self._hold(True)

    def resume(self) -> None:
        """See `Engine`."""
        with self._calling():
            self._hold(False)
        super().resume()

    # ---- one step -------------------------------------------------------------------------------

    def _prepare(self, row: Row) -> None:
        self._wake_up()
        sampling = row.request.sampling
        try:
            row.params = sampling_params(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                seed=row.request.seed % 2**63,
                max_tokens=row.room,
                logprobs=0,  # that of the sampled token only
                stop_token_ids=sorted(self.stop_ids),
                ignore_eos=True,  # it is one of these
            )
        except Exception as error:  # of a class of its own, for temperatures above 2
            raise UserError(f"engine 'vllm' cannot sample as {sampling} says: {error}") from error

    def _running(self) -> Iterable[Row]:
        return self._rows.values()

    def _drop(self) -> None:
        with self._lock:
            if self._rows:
                self._engine.abort_request(list(self._rows))
            self._rows = {}

    async def _step(self) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        started = time.perf_counter()
        try:
            with self._lock:
                self._admit()
            if self._rows:
                self.stats.steps += 1
                self.stats.row_steps += len(self._rows)
                for output in await to_thread(self._advance) if self._overlap else self._advance():
                    self._see(output)
        except EngineDeadError as error:
            self._fail(how_it_ended(self._engine), error)
        self.stats.seconds += time.perf_counter() - started

    def _advance(self) -> list[RequestOutput]:
        with self._lock:
            if self._held or not self._rows:  # since this step was begun: nothing would come
                return []
            outputs: list[RequestOutput] = self._engine.step()
            return outputs

    def _admit(self) -> None:
        """Abort what was cancelled, and hand over as many waiting rows as there is room for."""
        left = [number for number, row in self._rows.items() if row.future.done()]
        if left:
            self._engine.abort_request(left)
        for number in left:
            del self._rows[number]
        self._pending = [row for row in self._pending if not row.future.done()]
        self._pending.sort(key=lambda row: row.request.key)
        while self._pending and len(self._rows) < self.max_rows:
            row = self._pending[0]
            self._rows[self._submit(row.prompt_ids.tolist(), row.params, row.adapter)] = row
            del self._pending[0]

    def _submit(self, prompt_ids: list[int], params: Any, adapter: Any) -> str:
        from vllm.inputs import TokensPrompt

        number, prompt = str(next(self._numbers)), TokensPrompt(prompt_token_ids=prompt_ids)
        lora = adapter.request if isinstance(adapter, Loaded) else None
        self._engine.add_request(number, prompt, params, lora_request=lora)
        return number

    def _see(self, output: RequestOutput) -> None:
        """Finish the row of a request that has ended."""
        row = self._rows.pop(output.request_id, None) if output.finished else None
        if row is None or row.future.done():
            return
        completion = output.outputs[0]
        row.ids, row.log_probs = list(completion.token_ids), sampled(completion.logprobs)
        if row.request.sampling.temperature == 0:  # that policy puts all its mass on one token
            row.log_probs = [0.0] * len(row.ids)
        if isinstance(row.adapter, Loaded):
            row.versions = [(0, row.adapter.version)]
        else:
            spans = completion.weight_versions or ()
            row.versions = [(span.start, int(span.version)) for span in spans]
        self.stats.tokens += len(row.ids)
        self.stats.prompt_tokens += len(row.prompt_ids) - (output.num_cached_tokens or 0)
        self._finish(row, str(completion.finish_reason))

    # ---- weights --------------------------------------------------------------------------------

    def load_weights(
        self, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]], version: int
    ) -> None:
        """See `Engine`. Rows in flight keep their tokens; their context is computed anew.

        Tied weights are sent under each of their names: vLLM takes a head that is not sent for one
        that stays as it was.
        """
        given = checked_weights(self._weights, weights)
        for names in tied_names(self._weights.state_dict(keep_vars=True)):
            one = next(given[name] for name in names if name in given)
            given |= dict.fromkeys(names, one)
        with self._calling():
            self._wake_up()
            with self._holding(bool(self._rows)):  # no token is sampled between these three
                self._reload(given)
                self._forget()
                self._engine.set_weight_version(str(version))
        self.version = version

    def _reload(self, weights: dict[str, torch.Tensor]) -> None:
        if not self._in_files:
            pairs = list(weights.items())
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": pairs})
            return
        with weight_files(weights) as folder:
            self._engine.collective_rpc("reload_weights", kwargs={"weights_path": folder})

    def _forget(self) -> None:
        """Drop every cached key and value, those of rows in flight included."""
        self._engine.reset_prefix_cache(reset_running_requests=True)

    def probe(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> LogProbs:
        """See `Engine`: one request for each id, which asks for its log-prob among all next ones.

        vLLM's own log-probs of a prompt would not do: it computes them past its prefix cache. Rows
        in flight are sampled on meanwhile.
        """
        return self.probe_with(prompt_ids, ids, None)

    def probe_with(
        self, prompt_ids: Sequence[int], ids: Sequence[int], adapter: Loaded | None
    ) -> LogProbs:
        """`probe` of an adapter."""
        prompt, wanted = [int(one) for one in prompt_ids], [int(one) for one in ids]
        log_probs = np.zeros(len(wanted), np.float32)
        with self._calling():
            self._wake_up()
            with self._holding(False):
                asked = {
                    self._submit(prompt + wanted[:place], next_is(token), adapter): place
                    for place, token in enumerate(wanted)
                }
                while asked:
                    for output in self._engine.step():
                        place = asked.pop(output.request_id, None)
                        if place is None:
                            self._see(output)
                        else:
                            found = output.outputs[0].logprobs
                            assert found is not None
                            log_probs[place] = found[0][wanted[place]].logprob
        return log_probs

    def sleep(self) -> None:
        """See `Engine`: the weights go to CPU memory, keys and values are dropped."""
        if self._sleeps and not self._asleep:
            self._fail("put to sleep")
            with self._calling():
                self._engine.sleep(level=1)
            self._asleep = True

    def _wake_up(self) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        if not self._asleep:
            return
        torch.cuda.empty_cache()  # what torch only keeps here for later is needed there
        with self._calling():
            try:
                self._engine.wake_up()
            except EngineDeadError:
                raise
            except Exception as error:  # of no class of its own, if it comes from another process
                reason = str(error).strip().splitlines()[0]
                fix = "lower its engine.memory, or train.token_budget"
                raise MachineryError(
                    f"engine {self.name}: vLLM cannot take its memory back ({reason:.200}); {fix}"
                ) from error
        self._asleep = self._held = False

    def close(self) -> None:
        """See `Engine`."""
        if self._closed:
            return
        super().close()
        if self._own_process:
            self._engine.engine_core.shutdown()
            return
        _OPEN.discard(self)
        _CLOSED.append(self._engine)
        while _CLOSED and not _OPEN:
            _CLOSED.pop().engine_core.shutdown()


def weight_shapes(path: str, revision: str | None) -> Any:
    """The Hugging Face model of a folder or id without its weights: names, shapes and ties."""
    config = AutoConfig.from_pretrained(path, revision=revision)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
