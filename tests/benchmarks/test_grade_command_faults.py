"""mas-bench grade: interrupted, killed, on a full disk, with another output in its way."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from mas_envs.grading import grade_math
from mas_envs.grading.math_answer import GRADER
from tests.benchmarks.test_grade_command import ROWS, call, rows_of, write


@pytest.fixture
def answers(tmp_path):
    return write(tmp_path / "answers.jsonl", ROWS)


def test_a_torn_output_is_continued_to_the_same_bytes(answers):
    call(answers)
    out = answers.with_name("answers.graded.jsonl")
    whole = out.read_bytes()
    for cut in range(len(whole)):
        if cut % 37 and whole[cut - 1 : cut] != b"\n":
            continue  # a sample of the places, and every end of a line
        out.write_bytes(whole[:cut])
        assert call(answers).exit_code == 0
        assert out.read_bytes() == whole


def test_another_input_or_option_does_not_continue_an_output(answers):
    out = answers.with_name("answers.graded.jsonl")
    assert call(answers).exit_code == 0
    before = out.read_bytes()
    refused = call(answers, "--policy", "strict")
    assert refused.exit_code == 2
    assert "options = {}, now it is {'policy': 'strict'}" in refused.stderr
    record = out.with_name(out.name + ".run.json")
    begun = record.read_text()
    record.write_text(begun.replace(f'"{GRADER}"', '"math-0"'))
    refused = call(answers)
    assert refused.exit_code == 2
    assert f"was graded by the rules math-0, now they are {GRADER}; give another" in refused.stderr
    record.write_text(begun)
    write(answers, ROWS[:2])
    refused = call(answers)
    assert refused.exit_code == 2
    assert "another content" in refused.stderr
    assert out.read_bytes() == before
    out.unlink()
    assert call(answers).exit_code == 0
    assert len(rows_of(out)) == 2


def test_an_output_with_foreign_rows_is_refused(answers):
    call(answers)
    out = answers.with_name("answers.graded.jsonl")
    lines = out.read_text().splitlines(keepends=True)
    out.write_text(lines[0] + lines[2])
    assert f"{out}:2: not a row of this grading" in call(answers).stderr
    out.write_text("".join(lines))
    for foreign in ('{"a": 1}\n', out.read_text().splitlines()[0] + "\n"):
        whole = out.read_text()
        out.write_text(whole + foreign)
        done = call(answers)
        assert done.exit_code == 2
        assert f"{out}:5: not a row of this grading" in done.stderr
        out.write_text(whole)


COMMAND = "from benchmarks.cli import app; app(prog_name='mas-bench')"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_command_goes_on_where_it_was(tmp_path, number):
    shuffled = random.Random(0).choices(ROWS, k=60_000)
    file = write(tmp_path / "f.jsonl", [row | {"id": k} for k, row in enumerate(shuffled)])
    out = tmp_path / "f.graded.jsonl"
    command = [sys.executable, "-c", COMMAND, "grade", "f.jsonl"]
    killed = 0
    while True:
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        start = out.stat().st_size if out.exists() else 0
        while process.poll() is None:
            if killed < 3 and out.exists() and out.stat().st_size > start + 500_000:
                process.send_signal(number)
                killed += 1
                break
            time.sleep(0.005)
        said = process.communicate()[1]
        if process.returncode == 0:
            break
        if number == signal.SIGINT:
            assert process.returncode == 130
            assert "the same command goes on" in said
    assert killed
    found = rows_of(out)
    assert [row["id"] for row in found] == list(range(60_000))
    right = {id(row): grade_math(row["response"], _text(row["gold"])).correct for row in ROWS}
    assert [row["correct"] for row in found] == [right[id(row)] for row in shuffled]
    assert file.exists()


def _text(gold):
    return [str(one) for one in gold] if isinstance(gold, list) else str(gold)


@pytest.mark.parametrize("room", [4096, 2**20], ids=["record", "rows"])
def test_a_full_disk_is_named_and_the_same_command_goes_on(tmp_path, room):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs the rights to mount one")
    try:
        if room == 4096:
            (disk / "hog").write_bytes(bytes(room))
        file = write(tmp_path / "f.jsonl", [{"response": r"\boxed{1}", "gold": 1}] * 12_000)
        full = call(file, "--out", disk / "out.jsonl")
        assert full.exit_code == 2
        assert "No space left on device; make room there, then the same command" in full.stderr
        subprocess.run(["mount", "-o", "remount,size=40m", str(disk)], check=True)
        assert call(file, "--out", disk / "out.jsonl").exit_code == 0
        assert [row["line"] for row in rows_of(disk / "out.jsonl")] == list(range(1, 12_001))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_two_writers_of_one_output_do_not_mix(answers):
    import fcntl

    out = answers.with_name("answers.graded.jsonl")
    with out.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = call(answers)
    assert done.exit_code == 2
    assert "another mas-bench grade is writing it" in done.stderr
