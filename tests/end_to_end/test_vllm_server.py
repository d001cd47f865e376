"""A real vLLM server behind the HTTP policy: equal tokens, equal log-probs, and killed in flight.

MAS_GYM_VLLM_PYTHON names a python with vLLM, in an environment of its own: vLLM pins its torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.request

import numpy as np
import pytest

import mas_envs
from mas_envs import Message, Request, Sampling, rollout
from mas_envs.errors import TooManyFailures
from mas_envs.policies.http import HTTPPolicy

torch = pytest.importorskip("torch")
PYTHON = os.environ.get("MAS_GYM_VLLM_PYTHON")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="MAS_GYM_VLLM_PYTHON names no python with vLLM"),
    pytest.mark.timeout(1200),
]
LENGTH = 512
PLAIN = Sampling(temperature=1.0, max_tokens=40)
NUCLEUS = Sampling(temperature=0.6, top_p=0.95, max_tokens=40)
# On a machine without a GPU; a build for GPUs does not read those of the CPU.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}  # fmt: skip


class Server:
    """vLLM with the demo's model, in a process group of its own."""

    def __init__(self, folder):
        from mas_train.model_path import model_path

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.log = folder / "vllm.log"
        options = {
            "model": model_path("mas-gym/demo"), "served-model-name": "tiny", "dtype": "float32",
            "max-model-len": LENGTH, "block-size": 32, "logprobs-mode": "processed_logprobs",
            "host": "127.0.0.1", "port": self.port,
        }  # fmt: skip
        flags = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
        module = "vllm.entrypoints.openai.api_server"
        # vLLM 0.32 on a CPU dies of a seeded request whose prompt it computes in two pieces.
        flags += ["--enforce-eager", "--no-enable-chunked-prefill"]
        self.command = [PYTHON, "-m", module, *flags]
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=os.environ | ENVIRONMENT,
                start_new_session=True,
            )  # fmt: skip

    def wait(self):
        """Until it answers."""
        until = time.monotonic() + 600
        while time.monotonic() < until and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/models", timeout=5).close()
                return
            except OSError:
                time.sleep(0.5)
        pytest.fail("vLLM did not start:\n" + self.log.read_text(errors="replace")[-4000:])

    def kill(self):
        """The server, its engine and its workers, without any warning."""
        with contextlib.suppress(ProcessLookupError):  # dead already
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("vllm"))
    running.start()
    try:
        running.wait()
        yield running
    finally:
        running.kill()


@pytest.fixture(scope="module")
def engine():
    from mas_train.engines.transformers import TransformersEngine

    torch.set_num_threads(1)
    return TransformersEngine.from_pretrained("mas-gym/demo", max_model_len=LENGTH)


def play(server, sampling, *, after=lambda finished: None, concurrency=32, **options):
    """64 episodes of math-v0 in (task, sample) order; `after` sees how many have finished."""
    env = mas_envs.make("math-v0", prompts="tiny")

    async def run():
        policy = HTTPPolicy(server.url, "tiny", tokens=True, **options)
        episodes = []
        try:
            async for episode in rollout(
                env, policy, list(env.tasks)[:64], sampling=sampling, concurrency=concurrency
            ):
                episodes.append(episode)
                after(episodes)
        finally:
            await policy.aclose()
        return sorted(episodes, key=lambda episode: episode.group)

    return asyncio.run(run())


def texts(episodes):
    return [[turn.text for turn in episode.turns] for episode in episodes]


def plain_log_probs(engine, turn):
    """Log-probs [T] of the turn's ids under its sampling, from one plain forward."""
    from mas_train.engines.sampling import restrict

    ids = torch.tensor([[*turn.prompt_ids.tolist(), *turn.ids.tolist()]])
    with torch.inference_mode():
        logits = engine.model(input_ids=ids).logits[0, len(turn.prompt_ids) - 1 : -1].float()
    log_probs = torch.log_softmax(logits / turn.sampling.temperature, dim=-1)
    log_probs = restrict(log_probs, [turn.sampling] * len(log_probs))
    return log_probs.gather(1, ids[0, len(turn.prompt_ids) :, None])[:, 0].numpy()


@pytest.mark.parametrize("sampling", [PLAIN, NUCLEUS], ids=["plain", "nucleus"])
def test_tokens_and_log_probs_are_those_of_our_engine(server, engine, sampling):
    episodes = play(server, sampling)
    assert [episode.status for episode in episodes] == ["done"] * 64
    turns = [turn for episode in episodes for turn in episode.turns]
    assert len(turns) >= 128
    for turn in turns:
        messages = [{"role": one.role, "content": one.content} for one in turn.messages]
        prompt = engine.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        assert turn.prompt_ids.tolist() == prompt
        assert (turn.versions, turn.model) == (((0, 0),), "tiny")
        np.testing.assert_allclose(turn.log_probs, plain_log_probs(engine, turn), atol=1e-4)
        ended = turn.ids[-1] in engine.stop_ids
        assert turn.finish_reason == ("stop" if ended else "length")
        assert ended or len(turn.ids) == 40
        shown = engine.tokenizer.decode(turn.ids[: -1 if ended else None])
        assert turn.text == shown or "\ufffd" in shown  # half a character vLLM may leave out
    assert texts(play(server, sampling)) == texts(episodes)  # equal seeds, equal tokens


def act(server, question, **sampling):
    request = Request(
        agent="solver_0", role="solver", messages=(Message("user", question),), seed=5,
        sampling=Sampling(**sampling),
    )  # fmt: skip

    async def once():
        policy = HTTPPolicy(server.url, "tiny", tokens=True)
        try:
            return await policy.act(request)
        finally:
            await policy.aclose()

    return asyncio.run(once())


def test_room_runs_out_as_in_our_engine(server, engine):
    assert act(server, "3+4+5=?", max_tokens=2).finish_reason == "length"
    assert act(server, "3+4+5=?", max_tokens=100_000).finish_reason == "stop"
    around = LENGTH - len(act(server, "", max_tokens=1).prompt_ids)
    for length, room in [(around - 5, 5), (around - 1, 1), (around, 0), (around + 1, 0)]:
        response = act(server, "x" * length, max_tokens=40)
        if room:
            assert len(response.prompt_ids) + room == LENGTH
            assert 1 <= len(response.ids) <= room
        else:
            assert (response.text, response.finish_reason) == ("", "overflow")


def test_killed_and_restarted_the_rollout_goes_on_as_if_nothing_had_been(server):
    whole = play(server, PLAIN)
    killed = []

    def kill_once(finished):
        if len(finished) == 10:
            server.kill()
            server.start()
            killed.append(True)

    # 40 attempts wait up to 20 minutes; timeout_s ends them after ten.
    episodes = play(server, PLAIN, after=kill_once, concurrency=16, attempts=40)
    assert killed and [episode.status for episode in episodes] == ["done"] * 64
    assert texts(episodes) == texts(whole)


def test_killed_for_good_the_episodes_fail_and_the_rollout_stops(server):
    seen = []

    def kill_once(finished):
        seen[:] = finished
        if len(finished) == 10:
            server.kill()

    server.wait()
    with pytest.raises(TooManyFailures, match=r"policy of (solver|verifier)_0: MachineryError"):
        play(server, PLAIN, after=kill_once, concurrency=16, attempts=2)
    failed = [episode for episode in seen if episode.status == "failed"]
    assert len(failed) == 10  # one more is too many of 200
    assert all(episode.grade is None and "/v1/models" in episode.reason for episode in failed)
