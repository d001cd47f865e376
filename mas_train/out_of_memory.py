"""Running out of memory, whatever it looks like, as one error that says what to lower."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from mas_envs.errors import UserError

_WORDS = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED",
          "can't start new thread")  # fmt: skip


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: the GPU's, torch's on the CPU, Python's, the operating system's."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True  # the second is torch's, which need not be loaded here
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)


@contextlib.contextmanager
def memory_errors(name: str, what: str) -> Iterator[None]:
    """Within this block the model `name` is doing `what`; raises `UserError` if memory runs out."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not out_of_memory(error):
            raise
        words = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"model {name!r}: out of memory while {what} ({words:.120}); lower "
            "train.token_budget (tokens of a micro-batch), rollout.max_tokens (the longest row), "
            f"models.{name}.engine.memory or engine.max_rows (what the engine keeps), or the "
            f"model's own share: set models.{name}.gradient_checkpointing, lora, "
            "optimizer.offload or devices"
        ) from error
