"""What the processes of a sharded learner leave behind when one of them, or their parent, ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from mas_envs.errors import MachineryError
from mas_train.config import LossConfig, OptimizerConfig
from mas_train.learner.sharded import group
from mas_train.learner.sharded.learner import ShardedLearner
from tests.mas_train.sharding_cases import alone_fails, tiny_model

pytestmark = pytest.mark.slow


def make(make_model=tiny_model):
    return ShardedLearner("tiny", make_model, OptimizerConfig(), devices=2)


def running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pids, seconds=30.0):
    deadline = time.monotonic() + seconds
    while any(map(running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(running, pids))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_update_and_the_others(random_rows, rank):
    learner, rows = make(), random_rows(8)
    learner.update(rows, rows.reward, LossConfig())
    pids = learner.group.pids
    os.kill(pids[rank], signal.SIGSTOP)  # so that the other waits for it in a collective
    threading.Timer(1.0, os.kill, (pids[rank], signal.SIGKILL)).start()
    with pytest.raises(MachineryError, match=rf"rank {rank} of the 2 .*pid {pids[rank]}.*SIGKILL"):
        learner.update(rows, rows.reward, LossConfig())
    assert gone(pids, 0.0)  # no zombie either: they have been waited for
    with pytest.raises(MachineryError, match=rf"rank {rank} of the 2"):  # the same again
        learner.log_probs(rows)


def test_a_rank_that_fails_alone_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(group, "GRACE_S", 5.0)
    with pytest.raises(MemoryError, match="on rank 1 alone") as caught:
        make(partial(alone_fails, 1))
    assert any("in rank 1" in note for note in caught.value.__notes__)


def test_half_read_weights_and_a_forgotten_learner_leave_no_process(random_rows):
    learner = make()
    pids = learner.group.pids
    weights = learner.named_weights()
    next(weights)
    weights.close()
    assert gone(pids, 0.0)
    with pytest.raises(MachineryError, match="'tiny': the processes of its learner have ended"):
        learner.log_probs(random_rows(8))
    learner = make()
    pids = learner.group.pids
    assert all(map(running, pids))
    del learner
    assert gone(pids, 0.0)


PARENT = """
import numpy as np
from tests.mas_train.conftest import random_rows
from tests.mas_train.test_sharding_failures import make
from mas_train.config import LossConfig

learner, rows = make(), random_rows.__wrapped__()(8)
print(*learner.group.pids, flush=True)
while True:
    learner.update(rows, rows.reward, LossConfig())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_ranks_end_with_their_parent(number):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            pids = [int(pid) for pid in parent.stdout.readline().split()]
            assert len(pids) == 2
            assert all(map(running, pids))
            time.sleep(1.0)  # into an update
        finally:
            parent.send_signal(number)
    assert gone(pids)
