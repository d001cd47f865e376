"""One rank: a `Learner` with its shards, which does what the parent asks all ranks to do.

Started by `group.Group` as a fresh interpreter. (command, arguments) come in on an inherited
socket, ("ok", value) or ("error", exception) go out; the commands are the methods of `Rank`.
"""

from __future__ import annotations

import datetime
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedModel

from mas_envs.errors import MachineryError, UserError
from mas_train.config import OptimizerConfig
from mas_train.engines.hf_model import quiet
from mas_train.experience.rows import Rows
from mas_train.learner.learner import Learner
from mas_train.learner.log_probs import row_log_probs
from mas_train.learner.sharded.group import bytes_of
from mas_train.learner.sharded.shards import Shards
from mas_train.learner.sharded.state import load_state, save_state

TIMEOUT = datetime.timedelta(minutes=30)
"""Of one collective. The parent notices a rank that ends; this is for one that stands still."""


def main(socket: int, parent: int, rank: int, count: int, meeting: str, threads: int) -> None:
    """Serve on the file descriptor `socket` until `parent` ends or closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C and SIGTERM are for the parent, which
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # lets an update finish
    connection = Connection(socket)
    asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, parent, asked), daemon=True).start()
    torch.set_num_threads(threads)
    served: Any = None
    reply: tuple[str, Any]
    while True:
        request = asked.get()
        try:
            command, args, options = pickle.loads(request)
            if command == "start":
                if not dist.is_initialized():
                    _join(rank, count, meeting)
                served, answer = Rank(rank, *args, **options), None
            else:
                answer = getattr(served, command)(*args, **options)
            if isinstance(answer, Iterator):
                for name, tensor in answer:
                    if rank == 0:
                        _send(connection, name, tensor)
                answer = None
            reply = "ok", answer if rank == 0 else None
        except Exception as error:
            reply = "error", _portable(error, rank)
        connection.send_bytes(pickle.dumps(reply))  # `send` would share the memory of tensors


class Rank:
    """The commands. All but `pid` are collective."""

    def __init__(
        self,
        rank: int,
        make_model: Callable[[], PreTrainedModel],
        optimizer: OptimizerConfig,
        **options: Any,
    ) -> None:
        quiet()
        self.rank = rank
        self.reference: tuple[Shards, PreTrainedModel] | None = None
        self.learner = Learner(make_model(), optimizer, sharded=True, **options)

    def update(self, *args: Any, **options: Any) -> dict[str, float]:
        """See `Learner.update`."""
        metrics = self.learner.update(*args, **options)
        torch.cuda.empty_cache()  # what torch only keeps for later, an engine on this device needs
        return metrics

    def log_probs(self, rows: Rows) -> list[Any]:
        """See `Learner.log_probs`."""
        return self.learner.log_probs(rows)

    def reference_log_probs(
        self, make_model: Callable[[], PreTrainedModel], rows: Rows
    ) -> list[Any]:
        """Of a frozen model that is made at the first call."""
        if self.reference is None:
            model = make_model()
            self.reference = Shards(model, frozen=True), model
        shards, model = self.reference
        look = partial(row_log_probs, model, budget=sys.maxsize)
        return shards.per_row(rows, self.learner.token_budget, look)

    def row_values(self, rows: Rows) -> list[Any]:
        """See `Learner.row_values`."""
        return self.learner.row_values(rows)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """See `Shards.named_weights`."""
        assert self.learner.shards is not None
        return self.learner.shards.named_weights(self.learner.model)

    def save_weights(self, folder: Path) -> None:
        """A Hugging Face folder, written by rank 0 from a model of whole tensors."""
        weights = self.named_weights()
        if self.rank:
            for _ in weights:
                pass
            return
        model: Any = self.learner.model
        with torch.device("meta"):
            plain = type(model)(model.config)
        found = {name: tensor.cpu() for name, tensor in weights}
        plain.load_state_dict(found, assign=True, strict=False)  # tied names have no tensor
        plain.tie_weights()
        plain.generation_config = model.generation_config
        plain.save_pretrained(folder)

    def save_state(self, file: Path) -> None:
        """See `state.save_state`."""
        save_state(self.learner, file)

    def load_state(self, file: Path) -> None:
        """See `state.load_state`."""
        load_state(self.learner, file)


def _join(rank: int, count: int, meeting: str) -> None:
    """Meet the other ranks at the file `meeting`."""
    backend = "gloo"
    if torch.cuda.is_available():
        if count > (found := torch.cuda.device_count()):
            raise UserError(f"{count} devices are asked for, but this machine has {found} GPUs")
        torch.cuda.set_device(rank)
        backend = "cpu:gloo,cuda:nccl"
    loopback = "lo0" if os.uname().sysname == "Darwin" else "lo"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)  # all ranks are on this machine
    dist.init_process_group(
        backend, init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=TIMEOUT
    )


def _send(connection: Connection, name: str, tensor: Tensor) -> None:
    """A tensor as bytes: shared memory would have to be larger than many containers allow."""
    connection.send(("weight", (name, tensor.dtype, tensor.shape)))
    connection.send_bytes(bytes_of(tensor.cpu().contiguous()))


def _portable(error: Exception, rank: int) -> Exception:
    """The exception with its traceback as a note, or one like it that survives pickling."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        kind = UserError if isinstance(error, UserError) else MachineryError
        name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        error = kind(f"{name}{error}").with_traceback(error.__traceback__)
    error.add_note(f"in rank {rank}:\n{''.join(traceback.format_exception(error))}")
    return error


def _receive(connection: Connection, parent: int, asked: queue.SimpleQueue[bytes]) -> None:
    """Queue what arrives; end the process with its parent, even in the middle of a collective."""
    try:
        while True:
            while not connection.poll(0.5):
                # The socket alone does not tell: a fork of the parent may hold its other end.
                if os.getppid() != parent:
                    os._exit(0)
            asked.put(connection.recv_bytes())
    finally:
        os._exit(0)
