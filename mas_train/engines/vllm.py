"""vLLM as an engine: paged attention and continuous batching, on a GPU (on a CPU for tests).

The only file that imports vllm. `VLLMEngine` steps vLLM in this process: requests join at step
boundaries, in order, and new weights are handed over in memory. Three settings are not vLLM's
defaults, and log-probs are those of the sampling policy only with them: `processed_logprobs`
(temperature included), its own generation config (no top-k from a model's file), and one random
stream per request.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
import time
from asyncio import to_thread
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from mas_envs.episodes.schema import LogProbs
from mas_envs.errors import UserError
from mas_train.engines.adapter import Adapter, Loaded
from mas_train.engines.chat import checked_path, load_chat
from mas_train.engines.hf_model import checked_weights, tied_names
from mas_train.engines.slots import Row
from mas_train.engines.stepped import SteppedEngine

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.outputs import RequestOutput

# Unless the user says otherwise: threads stay where they are, and only what went wrong is said
# (vLLM has much to tell about its own choices).
ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}

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
    runs in another process, as the workers of `tensor_parallel` > 1 do; then new weights
    go through files in shared memory.

    Raises `UserError` if vLLM is not installed, refuses the model, or has another vocabulary.
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
        with self._lock:
            self._wake_up()
            self._engine.add_lora(request)
        return request

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
        if self._rows:
            with self._lock:
                self._engine.abort_request(list(self._rows))
        self._rows = {}

    async def _step(self) -> None:
        started = time.perf_counter()
        with self._lock:
            self._admit()
        if self._rows:
            self.stats.steps += 1
            self.stats.row_steps += len(self._rows)
            for output in await to_thread(self._advance) if self._overlap else self._advance():
                self._see(output)
        self.stats.seconds += time.perf_counter() - started

    def _advance(self) -> list[RequestOutput]:
        with self._lock:
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
        with self._lock:
            self._wake_up()
            self._reload(given)
            self._forget()
            self._engine.set_weight_version(str(version))
        self.version = version

    def _reload(self, weights: dict[str, torch.Tensor]) -> None:
        if not self._in_files:
            pairs = list(weights.items())
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": pairs})
            return
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryDirectory(prefix="mas-gym-weights-", dir=memory) as folder:
            whole = {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}
            save_file(whole, Path(folder) / "model.safetensors")
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
        with self._lock:
            self._wake_up()
            asked = {
                self._submit(prompt + wanted[:place], _next_is(token), adapter): place
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
            with self._lock:
                self._engine.sleep(level=1)
            self._asleep = True

    def _wake_up(self) -> None:
        if self._asleep:
            self._engine.wake_up()
            self._asleep = False

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


def is_on_cpu() -> bool:
    """Whether the vLLM that is installed is a build for CPUs. Raises `UserError` without one."""
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        fix = "pip install 'mas-gym[vllm]', in an environment of its own: it pins torch"
        raise UserError(f"engine 'vllm' needs {error.name}; {fix}") from error
    return bool(current_platform.is_cpu())


def start(path: str | Path, options: dict[str, Any], on_cpu: bool, own_process: bool) -> Any:
    """vLLM's engine with these options and those that all have. Raises `UserError`."""
    # In this process new weights are handed over in memory.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(own_process))
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    options = options | {
        "skip_tokenizer_init": True, "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs", "enable_prefix_caching": True,
        "async_scheduling": False, "disable_log_stats": True, "seed": 0,
    }  # fmt: skip
    if on_cpu:
        # Its CPU build dies of a seeded request whose prompt it computes in two pieces.
        options |= {"block_size": 32, "enable_chunked_prefill": False}
        options["max_num_batched_tokens"] = max(options["max_model_len"] or 0, 8192)
    try:
        return LLMEngine.from_engine_args(EngineArgs(**options))
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"vLLM cannot serve {str(path)!r}: {reason}") from error


def sampling_params(**options: Any) -> SamplingParams:
    """vLLM's, for ids and log-probs of whole responses: no text, nothing before the end."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    final = RequestOutputKind.FINAL_ONLY
    return SamplingParams(**options, detokenize=False, flat_logprobs=True, output_kind=final)


def _next_is(token: int) -> SamplingParams:
    """Ask for the log-prob of `token` as the next one."""
    return sampling_params(max_tokens=1, logprob_token_ids=[token])


def sampled(log_probs: Any) -> list[float]:
    """Log-probs [T] of the sampled tokens, which stand first at each place."""
    return [log_probs.logprobs[start] for start in log_probs.start_indices]


def weight_shapes(path: str, revision: str | None) -> Any:
    """The Hugging Face model of a folder or id without its weights: names, shapes and ties."""
    config = AutoConfig.from_pretrained(path, revision=revision)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
