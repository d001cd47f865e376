"""Progress on stderr, without and with a terminal, of one job and of stages."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from retrievers.shell import progress
from retrievers.shell.progress import stages


@pytest.fixture
def clock(monkeypatch):
    """The time, which only the test moves."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_progress_without_a_terminal(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.progress("aime24", total=400, done=100, unit="episodes") as bar:
        for _ in range(100):
            now[0] += 1.0
            bar.advance(2 if bar.done % 4 else 1, note=f"reward {bar.done}")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 100 // 15 + 1  # one every 15 s, the last
    done = bar.done
    rate = (done - 100) / 100  # the hundred from before do not count
    left = progress._clock((400 - done) / rate)
    assert lines[-1].startswith(f"aime24 {done}/400 episodes, {rate:.1f}/s, {left} left, reward")


def test_progress_of_a_short_job_is_one_line_and_one_sample_gives_no_time_left(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.progress("demo", total=40, unit="steps") as bar:
        now[0] = 20.0
        bar.advance()
        assert capsys.readouterr().err == "demo 1/40 steps\n"
        bar.advance(38)
        assert capsys.readouterr().err == ""
        now[0] = 80.0
        bar.advance()
    assert capsys.readouterr().err == "demo 40/40 steps, 2.0 s each, took 1:20\n"  # not twice


def test_clock():
    assert [progress._clock(s) for s in (5, 65, 3600, 7265.4)] == [
        "0:05",
        "1:05",
        "1:00:00",
        "2:01:05",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_on_a_terminal_redraws_at_a_limited_rate():
    import pty

    code = (
        "from retrievers.shell.progress import progress\n"
        "with progress('arith', total=20_000, unit='episodes') as bar:\n"
        "    for done in range(20_000): bar.advance(1, note='[red]mean 0.5')\n"
    )
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=child,
        env=os.environ | {"COLUMNS": "120", "TERM": "xterm"},
    )
    os.close(child)
    shown = b""
    while True:
        try:
            shown += os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
    os.close(parent)
    assert process.wait() == 0
    text = shown.decode()
    assert "arith 20000/20000 episodes" in text and "[red]mean 0.5" in text and "━" in text
    assert Counter(text)["\r"] < 200  # not once per episode


def test_unknown_totals_and_bytes(capsys, clock):
    with progress.progress("reading", total=None, unit="rows") as bar:
        clock[0] += 10
        bar.advance(50)
    with progress.progress("reading", total=3_000_000_000, unit="bytes") as bar:
        clock[0] += 100
        bar.advance(1_000_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "reading 50 rows, 5.0/s, took 0:10",
        "reading 1.0/3.0 GB, 10.0 MB/s, 3:20 left",
    ]


def test_stages_are_lines_in_turn(capsys, clock):
    with stages() as told:
        for done in range(0, 401, 2):
            clock[0] += 0.1
            told("reading (bytes)", done * 10**6, 400 * 10**6)
        told("passages", 7, None)
        told("merge", 40, 100)  # 40 were there before
        clock[0] += 20
        told("merge", 50, 100)
        clock[0] += 20
        told("merge", 100, 100)
        told("hashing (bytes)", 10**6, 10**6)
    assert capsys.readouterr().err.splitlines() == [
        "reading 306.0/400.0 MB, 20.0 MB/s, 0:05 left",
        "reading 400.0/400.0 MB, 20.0 MB/s, took 0:20",
        "passages 7",
        "merge 50/100, 2.0 s each, 1:40 left",
        "merge 100/100, 1.5/s, took 0:40",
        "hashing 1.0/1.0 MB",
    ]


def test_transient_stages_without_a_terminal_speak_only_when_they_take_long(capsys, clock):
    with stages(transient=True) as told:
        told("reading (bytes)", 1, 2)
        told("reading (bytes)", 2, 2)
        told("merge", 1, 3)
        clock[0] += 16
        told("merge", 2, 3)
        told("merge", 3, 3)
    assert capsys.readouterr().err.splitlines() == [
        "merge 2/3",
        "merge 3/3, 8.0 s each, took 0:16",
    ]


def test_a_stage_that_fails_prints_no_end(capsys):
    with pytest.raises(ZeroDivisionError), stages() as told:
        told("reading (bytes)", 1, 2)
        raise ZeroDivisionError
    assert capsys.readouterr().err == ""
