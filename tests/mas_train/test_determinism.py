"""What exactly two runs have in common.

Equal configuration on one machine and one thread: equal bytes. Another `rollout.concurrency` or
`max_rows` decodes other rows together, which moves log-probs by rounding and nothing else: the
tokens, the rewards and (since the loss compares the learner with itself, unless `loss.correction`
reads the sampler's log-probs) the weights are the same.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

import mas_envs
from mas_train.loop import train
from mas_train.run.metrics_log import read_metrics
from tests.mas_train.run_cases import stored, timeless, weights


def digest(folder):
    parts = [sorted(weights(folder).items()), timeless(read_metrics(folder / "metrics.jsonl"))]
    whole = hashlib.sha256(repr([parts[1], stored(folder)]).encode())
    for _, array in parts[0]:
        whole.update(array.tobytes())
    return whole.hexdigest()


@pytest.mark.slow
def test_two_processes_with_other_hash_seeds_give_equal_bytes(config, tmp_path):
    program = (
        "import sys\n"
        "from mas_train.config import load\n"
        "from mas_train.loop import train\n"
        "from tests.mas_train.test_determinism import digest\n"
        "print(digest(train(load(sys.argv[1]))))\n"
    )
    found = []
    for seed in ("1", "2"):
        file = tmp_path / f"{seed}.yaml"
        file.write_text(config(f"run.dir={tmp_path / seed}").to_yaml())
        ended = subprocess.run(
            [sys.executable, "-c", program, str(file)],
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
        )
        assert ended.returncode == 0, ended.stderr
        found.append(ended.stdout.split()[-1])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "override",
    [
        ["rollout.concurrency=3"],
        pytest.param(
            ["models.solver.engine.max_rows=5", "models.verifier.engine.max_rows=2"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_how_many_are_decoded_together_changes_rounding_only(config, override):
    one, other = train(config("run.name=one")), train(config("run.name=other", *override))
    pairs = zip(
        mas_envs.read_episodes(one / "episodes"),
        mas_envs.read_episodes(other / "episodes"),
        strict=True,
    )
    for a, b in pairs:
        assert (a.task, a.sample, a.reward, a.seed) == (b.task, b.sample, b.reward, b.seed)
        for turn, same in zip(a.turns, b.turns, strict=True):
            assert (turn.seed, turn.text) == (same.seed, same.text)
            assert np.array_equal(turn.ids, same.ids)
            assert turn.log_probs == pytest.approx(same.log_probs, abs=1e-4)
    assert all(np.array_equal(array, weights(other)[name]) for name, array in weights(one).items())
