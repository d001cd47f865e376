"""Disks that fill, folders that cannot be written to, and death in the middle of a checkpoint."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mas_envs.errors import UserError
from mas_train.demo.run import run_demo
from mas_train.engines.hf_model import quiet
from mas_train.loop import train
from mas_train.run import checkpoint
from mas_train.run.metrics_log import read_metrics
from mas_train.team import Team
from tests.mas_train.run_cases import stored


@pytest.fixture(autouse=True)
def no_bars():
    quiet()


@pytest.fixture
def config(config):
    """One model for both roles: half the time."""
    return functools.partial(config, shared=True)


@pytest.fixture
def disk(tmp_path):
    """A file system of its own that holds 6 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs the rights to mount one")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place, left):
    """Leave so many bytes of room."""
    with (place / "hog").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass
    size = (place / "hog").stat().st_size
    os.truncate(place / "hog", max(size - left, 0))


@pytest.mark.parametrize(
    ("left", "every"),
    [(0, 3), (8192, 3), (2**19, 1), (2**20 + 2**19, 1)],
    ids=["episodes", "index", "weights", "optimizer"],
)
def test_a_disk_that_fills_stops_the_run_and_costs_no_checkpoint(config, disk, left, every):
    settings = ["train.steps=3", f"train.checkpoint_every={every}"]
    full = config(f"run.dir={disk}", *settings)

    def hog(metrics):
        if metrics["step"] == 0:
            fill(disk, left)

    with pytest.raises(UserError, match=r"cannot be written: .*make room there, then: mas-train"):
        train(full, watch=hog)
    before = checkpoint.newest(full.folder / "checkpoints")
    if before is not None:
        checkpoint.read_state(before)
    assert not list((full.folder / "checkpoints").glob(".*"))
    (disk / "hog").unlink()
    subprocess.run(["mount", "-o", "remount,size=40m", str(disk)], check=True)
    resumed = train(full, resume=True)
    assert [row["step"] for row in read_metrics(resumed / "metrics.jsonl")] == [0, 1, 2]
    assert len(stored(resumed)) == 3 * 16


def test_a_disk_without_room_for_the_demo(config, disk):
    fill(disk, 0)
    with pytest.raises(UserError, match=r"demo.* (cannot be written|is full)"):
        run_demo(config(f"run.dir={disk}"))


def test_a_checkpoint_folder_that_cannot_be_written_to(config):
    run = config()
    folder = run.folder / "checkpoints"

    def block(metrics):
        shutil.rmtree(folder, ignore_errors=True)
        folder.write_text("in the way")

    with pytest.raises(UserError, match=r"checkpoints: cannot be written: .*resume"):
        train(run, watch=block)
    folder.unlink()
    assert len(read_metrics(train(run, resume=True) / "metrics.jsonl")) == 2


def test_a_run_folder_that_cannot_be_made(config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UserError, match=r"file/demo-shared: cannot be written: .*choose another run.dir"
    ):
        train(config(f"run.dir={tmp_path / 'file'}"))


def test_killed_anywhere_in_a_save_no_half_checkpoint_remains(config, tmp_path):
    """Forked processes die at the 1st, 2nd, 3rd … access to the file system while they save."""
    team = Team(config())
    folder = tmp_path / "checkpoints"
    state = {"episodes": [0, 0], "team": {}}
    checkpoint.save(folder, 1, team.trained, state, keep=1)
    complete = contents(folder / "step-000001")
    deaths = 0
    while save_and_die(folder, team, state, at=deaths):
        deaths += 1
        found = checkpoint.existing(folder)
        assert found and len(found) <= 2
        for place in found:
            assert contents(place) == complete
            assert checkpoint.read_state(place)["step"] == checkpoint.step_of(place)
        if found[-1].name == "step-000002":  # it died after the rename; back to the start
            shutil.rmtree(folder)
            checkpoint.save(folder, 1, team.trained, state, keep=1)
    assert deaths > 20
    assert [path.name for path in folder.iterdir()] == ["step-000002"]


def contents(place):
    return {str(path.relative_to(place)) for path in place.rglob("*")}


def save_and_die(folder, team, state, at):
    """Whether a child process that saved step 2 died at its `at`-th access below `folder`."""
    child = os.fork()
    if child == 0:
        seen = 0

        def count(event, arguments):
            nonlocal seen
            if event.startswith(("os.", "open", "shutil.")) and str(folder) in str(arguments):
                seen += 1
                if seen > at:
                    os._exit(9)

        sys.addaudithook(count)
        try:
            checkpoint.save(folder, 2, team.trained, state, keep=1)
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def test_leftovers_of_a_killed_save_go_at_the_next(config, tmp_path):
    team, folder = Team(config()), tmp_path / "checkpoints"
    for name in (".step-000007", ".step-000020.4711"):
        (folder / name / "solver").mkdir(parents=True)
        (folder / name / "solver" / "model.safetensors").write_bytes(b"half")
    saved = checkpoint.save(folder, 8, team.trained, {}, keep=2)
    assert [path.name for path in folder.iterdir()] == ["step-000008"] == [Path(saved).name]
