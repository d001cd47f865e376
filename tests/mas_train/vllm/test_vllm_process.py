"""vLLM in a process of its own, as on a GPU: weights, pauses, sleep; either side killed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from mas_envs.errors import MachineryError
from mas_train.cli import app
from mas_train.run.metrics_log import read_metrics
from tests.mas_train.engine_cases import answers, reference, turns
from tests.mas_train.vllm.cases import ATOL, ask, check, difference, long_prompt, mixed, plain_model

LOADED = """
import os, signal, sys
from mas_train.engines.vllm import VLLMEngine
if __name__ == "__main__":
    engine = VLLMEngine("mas-gym/demo", max_model_len=512, own_process=True)
    print(engine._engine.engine_core.resources.engine_manager.processes[0].pid, flush=True)
    sys.stdin.read()
"""


def apart():
    from mas_train.engines.vllm import VLLMEngine

    return VLLMEngine("mas-gym/demo", max_model_len=512, own_process=True, overlap=True)


@pytest.fixture(scope="module")
def engine():
    made = apart()
    yield made
    made.close()


def process_of(engine):
    (process,) = engine._engine.engine_core.resources.engine_manager.processes
    return process


def running(pid):
    """Whether there is such a process that is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(one) for one in found.stdout.split()]


def test_two_engines_have_their_own_weights_and_their_own_end(engine):
    other = apart()
    response, requests = long_prompt(engine), mixed(12)
    model = plain_model(7)
    engine.load_weights(model.state_dict(), 5)
    assert difference(engine, model, response) < ATOL
    assert difference(other, plain_model(), response) < ATOL

    process = process_of(other)
    os.kill(process.pid, signal.SIGSTOP)  # it will not answer
    killing = subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {process.pid}"])
    with pytest.raises(MachineryError, match="vLLM's process was killed"):
        other.load_weights(plain_model().state_dict(), 1)
    killing.wait()
    other.close()

    found = answers(engine, requests)
    check(found, requests, model)
    assert {answer.versions for answer in found} == {((0, 5),)}
    engine.load_weights(plain_model().state_dict(), 0)


@pytest.mark.parametrize("paused", [False, True])
def test_new_weights_in_the_middle_of_responses(engine, paused):
    """The process samples on unasked: no token may come of new weights and old keys and values."""
    old, new = plain_model(), plain_model(6)
    requests = [ask(i, temperature=2.0, max_tokens=300) for i in range(48)]
    engine.load_weights(old.state_dict(), 0)

    async def play():
        tasks = [asyncio.create_task(engine.act(request)) for request in requests]
        steps = engine.stats.steps + 3
        while engine.stats.steps < steps:
            await asyncio.sleep(0.001)
        if paused:
            engine.pause()
        engine.load_weights(new.state_dict(), 7)
        if paused:
            engine.probe([1, 2, 3], [4, 5])  # rows in flight are sampled on meanwhile
            await turns(100)  # what the last step had finished is told
            tokens = engine.stats.tokens
            await turns(100)
            stopped = engine._engine.engine_core.call_utility("is_scheduler_paused")
            engine.resume()
            assert stopped and engine.stats.tokens == tokens
        return await asyncio.wait_for(asyncio.gather(*tasks), 120)

    changed = 0
    for response in asyncio.run(play()):
        before, after = (reference(model, response, 2.0) for model in (old, new))
        start = response.versions[1][0] if len(response.versions) == 2 else len(response.ids)
        if response.versions[0][1] == 7:
            start = 0
        changed += 0 < start < len(response.ids)
        np.testing.assert_allclose(response.log_probs[:start], before[:start], atol=ATOL)
        np.testing.assert_allclose(response.log_probs[start:], after[start:], atol=ATOL)
    assert changed > 5
    engine.load_weights(old.state_dict(), 0)


def test_asleep_it_wakes_for_whatever_comes_next(engine, monkeypatch):
    """A CPU's memory is not freed; requests, the pause and the wake-up are those of a GPU."""
    monkeypatch.setattr(engine, "_sleeps", True)
    requests = mixed(12)
    expected = answers(engine, requests)

    async def put_to_sleep():
        tasks = [asyncio.create_task(engine.act(request)) for request in requests]
        while engine.stats.steps < steps + 2:
            await asyncio.sleep(0.001)
        engine.sleep()
        return await asyncio.gather(*tasks, return_exceptions=True)

    steps = engine.stats.steps
    failed = [one for one in asyncio.run(put_to_sleep()) if isinstance(one, Exception)]
    assert failed and all("put to sleep" in str(one) for one in failed)
    assert engine._asleep
    freed = []  # torch's cache on a device, which must be empty before vLLM takes the memory back
    with monkeypatch.context() as patch:
        patch.setattr("torch.cuda.empty_cache", lambda: freed.append(engine._asleep))
        again = answers(engine, requests)
    assert freed == [True] and not engine._asleep
    assert [one.ids.tolist() for one in again] == [one.ids.tolist() for one in expected]
    engine.sleep()
    with monkeypatch.context() as patch:
        patch.setattr(engine._engine, "wake_up", lambda: 1 / 0)
        with pytest.raises(MachineryError, match=r"memory back \(division by zero\); lower"):
            engine.probe([1, 2, 3], [4, 5])
    for use in (
        lambda: engine.probe([1, 2, 3], [4, 5]),
        lambda: engine.load_weights(plain_model().state_dict(), 0),
    ):
        engine.sleep()
        use()
        assert not engine._asleep
    assert difference(engine, plain_model(), again[0]) < ATOL


def test_a_killed_process_fails_whoever_waits_and_whatever_comes():
    engine = apart()
    process, response = process_of(engine), long_prompt(engine)
    workers = children(process.pid)

    async def play():
        tasks = [asyncio.create_task(engine.act(ask(i, max_tokens=400))) for i in range(32)]
        while engine.stats.steps < steps + 3:
            await asyncio.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
        return await asyncio.gather(*tasks, return_exceptions=True)

    steps = engine.stats.steps
    found = asyncio.run(asyncio.wait_for(play(), 60))
    said = r"vLLM's process was killed \(SIGKILL; the system does so when memory runs out\)"
    failed = [one for one in found if isinstance(one, Exception)]
    assert failed and all(isinstance(one, MachineryError) for one in failed)
    for use in (
        lambda: answers(engine, [ask(0)]),
        lambda: engine.load_weights(plain_model().state_dict(), 1),
        lambda: engine.probe(response.prompt_ids, response.ids),
    ):
        with pytest.raises(MachineryError, match=f"^engine mas-gym/demo: {said}$"):
            use()
    assert engine.version == 0
    engine.close()
    until = time.monotonic() + 30
    while any(map(running, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(running, workers))


def test_a_killed_parent_leaves_no_process_behind():
    """On a GPU it would keep its share of the memory for good."""
    root = Path(__file__).parents[3]
    parent = subprocess.Popen(
        [sys.executable, "-c", LOADED], cwd=root, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    lines = iter(parent.stdout.readline, "")
    pid = next(int(line) for line in lines if line.strip().isdigit())
    family = [pid, *children(pid)]
    assert all(map(running, family))
    parent.kill()
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    until = time.monotonic() + 30
    while any(map(running, family)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(running, family))


def test_a_run_whose_engine_is_killed_saves_its_step_and_goes_on(tmp_path, monkeypatch):
    from mas_train.engines.vllm import VLLMEngine

    plain = VLLMEngine.__init__
    monkeypatch.setattr(VLLMEngine, "__init__", partialmethod(plain, own_process=True))
    act, killed = VLLMEngine.act, []

    async def act_and_be_killed(self, request):
        if self.version == 2 and not killed:
            killed.append(process_of(self).pid)
            os.kill(killed[0], signal.SIGKILL)
        return await act(self, request)

    monkeypatch.setattr(VLLMEngine, "act", act_and_be_killed)
    engine = {"name": "vllm", "max_model_len": 512, "max_rows": 64}
    model = {"path": "mas-gym/demo", "optimizer": {"lr": 1e-3}, "engine": engine}
    tree = {
        "run": {"name": "team", "dir": str(tmp_path), "threads": 1},
        "env": {"id": "math-v0", "args": {"max_rounds": 2}, "prompts": "tiny"},
        "agents": {"solver": {"model": "both"}, "verifier": {"model": "both"}},
        "models": {"both": model},
        "rollout": {"group_size": 4, "prompts_per_step": 8, "max_tokens": 40},
        "train": {"steps": 3, "eval_every": 0, "checkpoint_every": 3},
    }
    file = tmp_path / "team.yaml"
    file.write_text(yaml.safe_dump(tree))
    done = CliRunner().invoke(app, ["run", str(file)])
    assert done.exit_code == 1 and "vLLM's process was killed (SIGKILL" in done.output
    assert "mas-train resume" in done.output and "Traceback" not in done.output
    assert len(list(read_metrics(tmp_path / "team" / "metrics.jsonl"))) == 2
    again = CliRunner().invoke(app, ["resume", str(tmp_path / "team")])
    assert again.exit_code == 0, again.output
    steps = [row["step"] for row in read_metrics(tmp_path / "team" / "metrics.jsonl")]
    assert steps == [0, 1, 2]
