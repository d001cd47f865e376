"""`mas-bench run` as a process that is killed, terminated or started twice."""

import json
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.runner import FLUSH_S
from mas_envs import read_episodes
from mas_envs.episodes.index import read_index

SLOW_ADDER = """
import asyncio
from benchmarks.policies import adder

async def act(request):
    await asyncio.sleep(0.02)
    return adder(request)
"""
COMMAND = "from benchmarks.cli import app; app(prog_name='mas-bench')"


@pytest.fixture
def start(tmp_path):
    (tmp_path / "slow_adder.py").write_text(SLOW_ADDER)
    processes = []

    def start(out="run", suites=("arith",), limit=60):
        arguments = ["run", *suites, "--policy", "scripted:slow_adder:act", "-k", "4", "--limit"]
        arguments += [str(limit), "--concurrency", "4", "--out", out]
        process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.argv[1:] = {arguments}; {COMMAND}"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def wait_for_episodes(run, process):
    """Until a first frame is on disk; far longer than it should take."""
    for _ in range(int(20 * (FLUSH_S + 60))):
        if process.poll() is not None:
            pytest.fail(f"ended by itself: {process.communicate()}")
        if any(shard.stat().st_size for shard in run.glob("episodes/episodes-*")):
            return
        time.sleep(0.05)
    pytest.fail("nothing was ever flushed")


def finished(run):
    episodes = [e for e in read_episodes(run / "episodes") if e.status == "done"]
    found = {(e.task, e.sample): tuple(turn.text for turn in e.turns) for e in episodes}
    assert len(found) == len(episodes)  # no sample twice
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("default::mas_envs.episodes.store.TornFrame")
def test_kill_9_loses_only_what_was_not_flushed(tmp_path, start):
    run = tmp_path / "run"
    killed = start()
    wait_for_episodes(run, killed)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    before = finished(run)
    assert 0 < len(before) < 240
    with next(run.glob("episodes/episodes-*")).open("ab") as shard:
        shard.write(b"\x28\xb5\x2f\xfd\x24")  # what a kill within a write leaves: half a frame
    again = start()
    output = again.communicate()
    assert again.returncode == 0, output
    after = finished(run)
    assert len(after) == 240 and before.items() <= after.items()
    whole = start("whole")
    assert whole.wait() == 0
    assert finished(tmp_path / "whole") == after
    one, other = (json.loads((r / "summary.json").read_text()) for r in (run, tmp_path / "whole"))
    for agent in [*one["usage"]["agents"].values(), *other["usage"]["agents"].values()]:
        del agent["seconds"]
    assert one == other
    sessions = json.loads((run / "run.json").read_text())["sessions"]
    assert [session["finished"] is None for session in sessions] == [True, False]


@pytest.mark.slow
@pytest.mark.filterwarnings("default::mas_envs.episodes.store.TornFrame")
def test_two_suites_killed_again_and_again_are_played_once(tmp_path, start):
    both = {"suites": ("arith", "tinyworld"), "limit": 40}
    run, kept = tmp_path / "run", {"arith": {}, "tinyworld": {}}

    def size():
        return sum(shard.stat().st_size for shard in run.glob("*/episodes/episodes-*"))

    for wait in (0.3, None, None):  # once before anything is stored
        process, before = start(**both), size()
        if wait is not None:
            time.sleep(wait)
        while wait is None and size() == before and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for suite, found in kept.items():
            if any((run / suite).glob("episodes/episodes-*")):
                now = finished(run / suite)
                assert found.items() <= now.items()  # what was stored stays
                found.update(now)
    assert 0 < sum(map(len, kept.values())) < 320
    again, whole = start(**both), start("whole", **both)
    assert (again.wait(), whole.wait()) == (0, 0)
    for suite, found in kept.items():
        after = finished(run / suite)
        assert len(after) == 160 and found.items() <= after.items()
        assert finished(tmp_path / "whole" / suite) == after


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_termination_stores_what_is_finished_and_says_how_to_go_on(tmp_path, start, number):
    run = tmp_path / "run"
    stopped = start()
    wait_for_episodes(run, stopped)
    stopped.send_signal(number)
    _, said = stopped.communicate()
    assert stopped.returncode == 128 + number, said
    stored = len(read_index(run / "episodes"))
    assert f"{stored} of 240 episodes are in run" in said and "Traceback" not in said
    assert not (run / "summary.json").exists()


def test_two_writers_are_kept_apart(tmp_path, start):
    run = tmp_path / "run"
    first = start()
    wait_for_episodes(run, first)
    second = start()
    _, said = second.communicate()
    assert second.returncode == 2 and "another writer is at work there" in said
    first.terminate()
    first.wait()
    assert len(json.loads((run / "run.json").read_text())["sessions"]) == 1
