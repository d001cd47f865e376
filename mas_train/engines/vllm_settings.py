"""How vLLM is set up: which versions, its environment, its options, its sampling parameters.

Three settings are not vLLM's defaults, and log-probs are those of the sampling policy only with
them: `processed_logprobs` (temperature included), its own generation config (no top-k from a
model's file), and one random stream per request.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mas_envs.errors import UserError
from mas_train.engines.vllm_process import WORKER, tie

if TYPE_CHECKING:
    from vllm import SamplingParams

VERSIONS = ((0, 32), (0, 33))
"""Those whose calls this file was written for; they change with every one."""

INSTALL = "pip install 'mas-gym[vllm]', in an environment of its own: it pins torch"

# Unless the user says otherwise: threads stay where they are, processes start afresh (one forked
# after `torch.cuda.is_available()` has no GPU), and only what went wrong is said.
ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


def is_on_cpu() -> bool:
    """Whether the vLLM that is installed is a build for CPUs.

    Raises `UserError` without one, and for one that this file does not know.
    """
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        from vllm.platforms import current_platform
        from vllm.version import __version__, __version_tuple__
    except ImportError as error:
        raise UserError(f"engine 'vllm' needs {error.name}; {INSTALL}") from error
    if __version_tuple__[:2] not in VERSIONS:
        known = " or ".join(".".join(map(str, one)) for one in VERSIONS)
        raise UserError(f"engine 'vllm' needs vLLM {known}, not {__version__}; {INSTALL}")
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
        "async_scheduling": False, "disable_log_stats": True, "use_tqdm_on_load": False,
        "seed": 0,
    }  # fmt: skip
    if on_cpu:
        # Its CPU build dies of a seeded request whose prompt it computes in two pieces.
        options |= {"block_size": 32, "enable_chunked_prefill": False}
        options["max_num_batched_tokens"] = max(options["max_model_len"] or 0, 8192)
    if own_process:
        options["worker_extension_cls"] = WORKER
    try:
        engine = LLMEngine.from_engine_args(EngineArgs(**options))
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"vLLM cannot serve {str(path)!r}: {reason}") from error
    if own_process:
        tie(engine)
    return engine


def sampling_params(**options: Any) -> SamplingParams:
    """vLLM's, for ids and log-probs of whole responses: no text, nothing before the end."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    final = RequestOutputKind.FINAL_ONLY
    return SamplingParams(
        **options, detokenize=False, flat_logprobs=True, output_kind=final,
        skip_clone=True,  # they are made for one request: a deep copy costs 0.1 ms
    )  # fmt: skip


def next_is(token: int) -> SamplingParams:
    """Ask for the log-prob of `token` as the next one."""
    return sampling_params(max_tokens=1, logprob_token_ids=[token])


def sampled(log_probs: Any) -> list[float]:
    """Log-probs [T] of the sampled tokens, which stand first at each place."""
    return [log_probs.logprobs[start] for start in log_probs.start_indices]
