"""Episodes of two runs in one folder: no number comes of them, whoever reads."""

import errno
import os
import shutil

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.membership import differences
from mas_envs import read_episodes, write_episodes
from mas_envs.episodes.shards import frames

OPTIONS = ["--policy", "scripted:adder", "--k", 2, "--limit", 40]


def bench(*args):
    return CliRunner().invoke(app, list(map(str, args)), env={"COLUMNS": "200"})


def run(out, *options):
    played = bench("run", "arith", *OPTIONS, "--out", out, *options)
    assert played.exit_code == 0, played.output
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    others = {
        "rounds": ["--env-arg", "max_rounds=1"],
        "temperature": ["--temperature", 1.0],
        "seed": ["--seed", 7],
        "k": ["--k", 3],
        "limit": ["--limit", 60],
    }
    return {"run": run(folder / "run")} | {
        name: run(folder / name, *options) for name, options in others.items()
    }


SAID = {
    "rounds": "of another run: it has env.kwargs.max_rounds = 1, run.json says None",
    "temperature": "of another run: it has sampling.temperature = 1.0, run.json says 0.6",
    "seed": "of another run: with another suite, policy, k or seed than run.json says",
    "k": "the run has k = 2 samples",
    "limit": "question 41 of a run that has 40",
}


def readers(folder, other, tmp_path):
    return [
        ["report", folder], ["compare", folder, other], ["diagnose", folder],
        ["export", folder, "--out", tmp_path / "export"],
        ["rescore", folder, "--out", tmp_path / "again"],
        ["report", folder, "--out", tmp_path / "page"],
        ["run", "arith", *OPTIONS, "--out", folder],
    ]  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_half_of_one_run_and_half_of_another(runs, tmp_path, name):
    mixed = shutil.copytree(runs["run"], tmp_path / "mixed")
    shard = mixed / "episodes" / "episodes-00000.jsonl.zst"
    os.truncate(shard, next(frames(shard))[1])
    there = {(e.task, e.sample) for e in read_episodes(shard)}
    assert 0 < len(there) < 80
    foreign = [e for e in read_episodes(runs[name] / "episodes")
               if (e.task, e.sample) not in there]  # fmt: skip
    if name == "k":
        foreign = [e for e in foreign if e.sample == 2]
    if name == "limit":
        foreign = [e for e in foreign if e.group >= 40]
    write_episodes(tmp_path / "rest", foreign)
    shutil.copy(tmp_path / "rest" / shard.name, shard.with_name("episodes-00001.jsonl.zst"))
    for command in readers(mixed, runs["run"], tmp_path):
        told = bench(*command)
        assert told.exit_code == 2 and "episodes-00001.jsonl.zst: " in told.stderr, command
        if command[0] != "run":  # which looks before it plays, without the conversations
            assert SAID[name] in " ".join(told.stderr.split()), told.stderr
    assert not {"export", "again", "page"} & {path.name for path in tmp_path.iterdir()}


def test_questions_of_another_run_in_place_of_ones_own(runs, tmp_path):
    swapped = shutil.copytree(runs["run"], tmp_path / "swapped")
    shutil.rmtree(swapped / "episodes")
    others = (e for e in read_episodes(runs["limit"] / "episodes") if 10 <= e.group < 50)
    write_episodes(swapped / "episodes", others)
    told = bench("report", swapped)
    assert told.exit_code == 2 and "of another run" in told.stderr


def test_a_shard_that_is_there_twice(runs, tmp_path):
    double = shutil.copytree(runs["run"], tmp_path / "double")
    shard = double / "episodes" / "episodes-00000.jsonl.zst"
    shutil.copy(shard, shard.with_name("episodes-00001.jsonl.zst"))
    for command in readers(double, runs["run"], tmp_path):
        told = bench(*command)
        assert told.exit_code == 2 and "recorded twice" in told.stderr, (command, told.output)


def test_a_rescored_run_and_one_of_other_code_belong_together(runs, tmp_path):
    again = tmp_path / "again"
    assert bench("rescore", runs["run"], "--policy", "strict", "--out", again).exit_code == 0
    assert bench("report", again).exit_code == 0
    assert bench("rescore", again, "--out", tmp_path / "back").exit_code == 0
    unmarked = shutil.copytree(runs["run"], tmp_path / "unmarked")
    episodes = list(read_episodes(unmarked / "episodes"))
    shutil.rmtree(unmarked / "episodes")
    for episode in episodes:
        episode.provenance.clear()
    write_episodes(unmarked / "episodes", episodes)
    assert bench("report", unmarked).exit_code == 0


def test_all_that_differs_is_named():
    before, now = {"a": 1, "b": {"c": [1], "d": 2}}, {"b": {"c": [2], "d": 2, "e": None}, "f": 0}
    assert list(differences(before, now)) == [
        ("a", 1, None), ("b.c", [1], [2]), ("f", None, 0)
    ]  # fmt: skip


@pytest.mark.filterwarnings("default::mas_envs.episodes.store.TornFrame")
def test_what_a_killed_writer_left_is_a_note_and_the_same_command_plays_it(runs, tmp_path):
    torn = shutil.copytree(runs["run"], tmp_path / "torn")
    shard = torn / "episodes" / "episodes-00000.jsonl.zst"
    os.truncate(shard, shard.stat().st_size - 9)
    again = bench("run", "arith", *OPTIONS, "--out", torn)
    [note] = [line for line in again.stderr.splitlines() if "torn" in line]
    assert note.startswith(f"note: {shard}: torn frame at byte ") and "Warning" not in again.stderr
    assert again.exit_code == 0 and "missing" not in again.output
    texts = [
        {(e.task, e.sample): [turn.text for turn in e.turns] for e in read_episodes(one)}
        for one in (torn / "episodes", runs["run"] / "episodes")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_a_full_disk_is_one_line(tmp_path, monkeypatch, error):
    def full(*args):
        raise OSError(error, os.strerror(error))  # as a write has it, without a file's name

    monkeypatch.setattr("mas_envs.episodes.store.pack_frame", full)
    told = bench("run", "arith", *OPTIONS, "--out", tmp_path / "run")
    assert told.exit_code == 2 and told.stderr.endswith(f": {os.strerror(error)}\n")
