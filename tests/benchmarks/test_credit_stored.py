"""The replays of `mas-bench credit`: stored, continued after a kill, never mixed."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from typer.testing import CliRunner

from benchmarks.accounting import Usage
from benchmarks.cli import app
from benchmarks.diagnostics.replays import Replay, stored_replays
from mas_envs import Fork, read_episodes, write_episodes
from mas_envs.prompts import PROMPT_SETS
from mas_envs.protocol import role_of

SCRIPTS = """
import asyncio, pathlib
from benchmarks.policies import adder

calls = []

def counted(request):
    calls.append((request.seed, request.agent))
    return adder(request)

async def slow(request):
    await asyncio.sleep(0.05)
    with pathlib.Path("calls").open("a") as file:
        file.write(f"{request.agent} {request.seed}\\n")
    return adder(request)

def broken(request):
    if "fail" in calls and request.seed % 4 == 0:
        raise OSError("engine dead")
    return adder(request)
"""
COMMAND = "from benchmarks.cli import app; app(prog_name='mas-bench')"


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "160"})


def play(out, *more, k=4, limit=10):
    done = bench("run", "arith", "--policy", "scripted:adder", "-k", k, "--limit", limit,
                 "--env-arg", "max_rounds=3", "--out", out, *more)  # fmt: skip
    assert done.exit_code == 0, done.output


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    (tmp_path / "replay_scripts.py").write_text(SCRIPTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("replay_scripts", None)
    import replay_scripts  # type: ignore[import-not-found]

    return replay_scripts


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("stored") / "run"
    play(out)
    return out


def ask(run, script="adder", *more):
    return ["credit", run, "--agent", "solver", "--replace", f"scripted:{script}", *more]


def by_place(folder):
    """(replay, draw) → what was said; each finished one is there once."""
    found = [e for e in read_episodes(folder / "episodes") if e.status == "done"]
    places = {(e.provenance["fork"], e.sample): tuple(turn.text for turn in e.turns) for e in found}
    assert len(places) == len(found)
    return places


def result(folder):
    """What was found, without the seconds that it took."""
    found = json.loads((folder / "credit.json").read_text())
    for used in found["usage"]["agents"].values():
        del used["seconds"]
    return found


def test_what_is_stored_is_not_played_again_and_the_rest_is_as_it_would_have_been(
    run, tmp_path, scripts
):
    name, whole, part = "replay_scripts:counted", tmp_path / "whole", tmp_path / "part"
    first = bench(*ask(run, name, "--draws", 2, "--out", whole))
    assert first.exit_code == 0, first.output
    replayed = by_place(whole)
    assert len(replayed) == 80
    again = bench(*ask(run, name, "--draws", 2, "--out", whole))
    assert again.stdout == first.stdout  # the seconds, too: they are those that are stored
    assert "80/80 replays, all there already" in again.stderr
    everybody = Counter(scripts.calls)
    assert max(everybody.values()) == 1
    part.mkdir()
    shutil.copy(whole / "run.json", part)
    write_episodes(part / "episodes", list(read_episodes(whole / "episodes"))[::3])
    kept = by_place(part)
    scripts.calls.clear()
    resumed = bench(*ask(run, name, "--draws", 2, "--out", part))
    assert resumed.exit_code == 0, resumed.output
    assert by_place(part) == replayed and kept.items() <= replayed.items()
    assert 0 < len(scripts.calls) < len(everybody) and everybody >= Counter(scripts.calls)
    assert result(part) == result(whole)
    assert result(whole)["usage"]["agents"]["solver_0"]["calls"] == len(everybody)


def test_the_folder_is_beside_the_run_and_names_no_path_of_this_machine(run, tmp_path):
    done = bench(*ask(run, "silent", "--limit", 2, "--json", tmp_path / "also.json"))
    out = run / "credit" / "solver-silent"
    assert done.exit_code == 0, done.output
    assert (tmp_path / "also.json").read_bytes() == (out / "credit.json").read_bytes()
    original = {e.task: e for e in read_episodes(run / "episodes")}
    for episode in read_episodes(out / "episodes"):
        assert episode.env == original[episode.task].env
    assert str(tmp_path.parent) not in (out / "run.json").read_text()
    assert bench("report", run).exit_code == 0  # the run is read as before
    for command in (["report", out], ["diagnose", out], ["run", "arith", "--policy",
                    "scripted:adder", "--out", out]):  # fmt: skip
        told = bench(*command)
        assert told.exit_code == 2 and "replays of mas-bench credit" in told.stderr, told.output
    told = bench(*ask(run, "silent", "--out", run))
    assert told.exit_code == 2 and "holds a run; give another folder" in told.stderr


OTHERS = {
    ("--draws", 2): "credit.draws = 1, now it is 2",
    ("--seed", 5): "seed = 0, now it is 5",
    ("--limit", 4): "questions = 3, now it is 4",
    ("--agent", "solver_0"): "credit.agent = 'solver', now it is 'solver_0'",
    ("--replace", "scripted:silent"): "credit.replace = 'scripted:adder', now it is 'scripted:sil",
    ("--policy", "scripted:replay_scripts:counted"): "policies.verifier.target = 'scripted:adder'",
    ("--env-arg", "max_rounds=2"): "env.kwargs.max_rounds = 3, now it is 2",
}


@pytest.fixture(scope="module")
def three(run):
    out = run.parent / "three"
    assert bench(*ask(run, "adder", "--limit", 3, "--out", out)).exit_code == 0
    return out


@pytest.mark.parametrize("options", OTHERS, ids=" ".join(map(str, OTHERS)).split("(")[1:])
def test_another_setting_in_the_folder_is_refused(run, three, scripts, options):
    told = bench(*ask(run, "adder", "--limit", 3, "--out", three, *options))
    assert told.exit_code == 2 and OTHERS[options] in told.stderr, told.output
    assert len(told.stderr.strip().splitlines()[-1:]) == 1 and not scripts.calls


def test_another_run_in_the_same_place_is_refused(run, three, tmp_path):
    other = tmp_path / "run"
    play(other, "--seed", 1)
    told = bench(*ask(other, "adder", "--limit", 3, "--out", three))
    assert told.exit_code == 2 and "credit.run.seed = 0, now it is 1" in told.stderr, told.output


def test_what_failed_is_stored_counted_and_played_again(run, tmp_path, scripts, monkeypatch):
    monkeypatch.setattr("mas_envs.player.back_off", lambda attempt: _nothing())
    out = tmp_path / "out"
    options = ask(run, "replay_scripts:broken", "--limit", 4, "--out", out)
    scripts.calls.append("fail")
    told = bench(*options)
    assert told.exit_code == 0, told.output
    result = json.loads((out / "credit.json").read_text())
    failed = result["left_out"]["replay failed"]
    assert failed > 0 and "the same command plays again what failed" in told.stderr
    stored = Counter(episode.status for episode in read_episodes(out / "episodes"))
    assert stored == {"failed": 2 * failed, "done": 16 - failed}  # tried twice
    scripts.calls.clear()
    again = bench(*options)
    assert again.exit_code == 0 and len(by_place(out)) == 16
    assert json.loads((out / "credit.json").read_text())["left_out"] == {}
    whole = bench(*ask(run, "replay_scripts:broken", "--limit", 4, "--out", tmp_path / "whole"))
    assert whole.exit_code == 0 and by_place(out) == by_place(tmp_path / "whole")


async def _nothing():
    return None


def test_replays_of_one_beginning_draw_apart(run):
    episodes = list(read_episodes(run / "episodes"))
    places = {Replay(episode, 0).id for episode in episodes}
    assert len(places) == 40 and len({Fork(episode, 0).id for episode in episodes}) == 10
    assert {Replay(episode, 0).id for episode in reversed(episodes)} == places


def test_of_a_replay_only_the_new_turns_were_paid_for(run):
    usage, spoken = Usage(), Counter()
    for episode in read_episodes(run / "episodes"):
        spoken.update(turn.agent for turn in episode.turns[1:])
        episode.provenance = {"fork": Replay(episode, 1).id, "decision": "1"}
        usage.add(episode)
    counted = usage.summary()["agents"]
    assert {agent: used["calls"] for agent, used in counted.items()} == spoken


# ---- processes ---------------------------------------------------------------------------------


def start(tmp_path, out):
    arguments = ["credit", "run", "--agent", "solver", "--replace", "scripted:replay_scripts:slow"]
    arguments += ["--concurrency", "4", "--draws", "2", "--out", out]
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.argv[1:] = {arguments}; {COMMAND}"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_replays(out, process, more_than=0):
    """Until frames of so many bytes are on disk; far longer than it should take."""
    for _ in range(1200):
        if process.poll() is not None:
            pytest.fail(f"ended by itself: {process.communicate()}")
        size = sum(shard.stat().st_size for shard in out.glob("episodes/episodes-*"))
        if size > more_than:
            return size
        time.sleep(0.05)
    pytest.fail("nothing was ever flushed")


@pytest.mark.slow
@pytest.mark.filterwarnings("default::mas_envs.episodes.store.TornFrame")
def test_kill_9_loses_only_what_was_not_flushed(tmp_path, scripts):
    """Killed twice; then the same as one that was never killed."""
    play(tmp_path / "run", limit=60)
    out, calls, size, kept = tmp_path / "out", tmp_path / "calls", 0, {}
    for _ in range(2):
        killed = start(tmp_path, "out")
        size = wait_for_replays(out, killed, size)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        now = by_place(out)
        assert len(kept) < len(now) < 480 and kept.items() <= now.items()
        kept = now
    stored = {
        f"{turn.agent} {turn.seed}"
        for episode in read_episodes(out / "episodes")
        for turn in episode.turns[int(episode.provenance["decision"]) :]
        if role_of(turn.agent) == "solver"
    }
    with next(out.glob("episodes/episodes-*")).open("ab") as shard:
        shard.write(b"\x28\xb5\x2f\xfd\x24")  # half a frame
    calls.unlink()
    last = start(tmp_path, "out")
    _, told = last.communicate()
    assert last.returncode == 0, told
    assert not stored & set(calls.read_text().splitlines())  # nothing was paid for twice
    assert "480/480 replays" in told
    whole = start(tmp_path, "whole")
    whole.communicate()
    assert whole.returncode == 0 and result(tmp_path / "whole") == result(out)
    assert by_place(out) == by_place(tmp_path / "whole") and len(stored_replays(
        out / "episodes")) == 480  # fmt: skip


def test_ctrl_c_says_how_to_go_on(tmp_path, scripts):
    play(tmp_path / "run", limit=20)
    stopped = start(tmp_path, "out")
    while not (tmp_path / "calls").exists() and stopped.poll() is None:
        time.sleep(0.02)
    stopped.send_signal(signal.SIGINT)
    _, told = stopped.communicate()
    stored = len(by_place(tmp_path / "out"))
    assert stopped.returncode == 130 and "Traceback" not in told
    assert f"{stored} replays are in out; the same command goes on from there" in told
    assert not (tmp_path / "out" / "credit.json").exists()


# ---- prompts -----------------------------------------------------------------------------------


def own_prompts(folder, name, text, to):
    """A prompt set without a name, which is then identified by that of its file."""
    folder.mkdir()
    default = (PROMPT_SETS / "math" / "default.toml").read_text()
    lines = [line for line in default.splitlines() if not line.startswith("name")]
    (folder / name).write_text("\n".join(lines).replace(text, to))
    return folder / name


@pytest.mark.parametrize("whose", ["all", "roles", "agent", "mixed"])
def test_the_run_has_its_prompts_whoever_they_are_of(tmp_path, whose):
    one = own_prompts(tmp_path / "a=1", "mine.toml", "You", "You, my friend,")
    two = own_prompts(tmp_path / "b", "mine.toml", "You", "You, my foe,")
    prompts, copies = {
        "all": (one, ["prompts.toml"]),
        "roles": (f"solver={one},verifier={two}", ["prompts.solver.toml", "prompts.verifier.toml"]),
        "agent": (f"verifier_0={two}", ["prompts.verifier_0.toml"]),
        "mixed": (f"solver=tiny,verifier={two}", ["prompts.verifier.toml"]),
    }[whose]
    run = tmp_path / "run"
    play(run, "--prompts", prompts, k=2, limit=3)
    shown = {
        turn.role: turn.messages[-1].content
        for episode in read_episodes(run / "episodes")
        for turn in episode.turns
    }
    assert ("my foe" in shown["verifier"]) == (whose != "all")
    for file in (one, two):
        shutil.rmtree(file.parent)
    assert sorted(path.name for path in run.glob("prompts*")) == copies
    assert str(tmp_path) not in (run / "run.json").read_text()
    done = bench(*ask(run, "silent"))
    assert done.exit_code == 0, done.output
    for episode in read_episodes(run / "credit" / "solver-silent" / "episodes"):
        assert str(tmp_path) not in str(episode.env)
        said = [turn.messages[-1].content for turn in episode.turns if turn.role == "verifier"]
        assert all(("my foe" in text) == (whose != "all") for text in said)
    assert bench("diagnose", run).exit_code == 0
    again = tmp_path / "again"
    assert bench("rescore", run, "--out", again).exit_code == 0
    assert sorted(path.name for path in again.glob("prompts*")) == copies
    rescored = bench(*ask(again, "silent"))
    assert rescored.exit_code == 0, rescored.output
    assert result(again / "credit" / "solver-silent") == result(run / "credit" / "solver-silent")
    (run / copies[0]).unlink()
    gone = bench(*ask(run, "silent"))
    assert gone.exit_code == 2 and "--prompts FILE" in gone.stderr, gone.output
