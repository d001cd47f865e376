"""How every command line ends, and what its progress looks like without and with a terminal."""

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
from typer.testing import CliRunner

from mas_envs import console
from mas_envs.errors import BadFile, TooManyFailures, UserError

app = console.command_line("Say something.", ["say file --now [maybe] \\", "    more"])


@app.command()
def say(what: str) -> None:
    raise {
        "user": BadFile("x.jsonl", "two\nlines", 3, "mend it"),
        "run": TooManyFailures("11 of 11"),
        "stop": KeyboardInterrupt("3 of 4 are stored"),
        "read": FileNotFoundError(2, "No such file or directory", "x.html"),
        "rename": IsADirectoryError(21, "Is a directory", ".x.html.17", None, "x.html"),
        "bug": ZeroDivisionError("a bug"),
    }[what]


@pytest.mark.parametrize(
    ("what", "code", "line"),
    [
        ("user", 2, "x.jsonl:3: two lines; mend it"),
        ("run", 1, "failed: 11 of 11"),
        ("stop", 130, "interrupted; 3 of 4 are stored"),
        ("read", 2, "x.html: No such file or directory"),
        ("rename", 2, "x.html: Is a directory"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(what, code, line):
    result = CliRunner().invoke(app, ["say", what], prog_name="mas-say")
    assert (result.exit_code, result.stderr) == (code, f"mas-say: {line}\n")
    assert result.stdout == ""


def test_a_bug_keeps_its_traceback():
    result = CliRunner().invoke(app, ["say", "bug"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_help_shows_the_examples_and_usage_errors_exit_with_2():
    shown = CliRunner().invoke(app, ["--help"])
    examples = [line.strip() for line in shown.stdout.split("Examples:")[1].splitlines()]
    assert shown.exit_code == 0 and examples[1:3] == ["say file --now [maybe] \\", "more"]
    assert CliRunner().invoke(app, ["say"]).exit_code == 2
    assert CliRunner().invoke(app, ["sing"]).exit_code == 2


def test_sigterm_ends_like_ctrl_c_even_where_ctrl_c_is_ignored():
    code = (
        "import signal, os, time\n"
        "from mas_envs.console import command_line\n"
        "app = command_line('x')\n"
        "@app.command()\n"
        "def wait(): os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)\n"
        "app(['wait'], prog_name='x')\n"
    )
    for handler in (signal.SIG_DFL, signal.SIG_IGN):
        ended = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True,
            preexec_fn=lambda handler=handler: signal.signal(signal.SIGINT, handler) and None,
        )  # fmt: skip
        assert (ended.returncode, ended.stderr) == (143, "x: terminated\n")


def test_progress_without_a_terminal(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    with console.progress("aime24", total=400, done=100) as bar:
        for _ in range(100):
            now[0] += 1.0
            bar.advance(2 if bar.done % 4 else 1, note=f"reward {bar.done}")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 100 // 15 + 1  # one every 15 s, the last
    done = bar.done
    rate = (done - 100) / 100  # the hundred from before do not count
    left = console._clock((400 - done) / rate)
    assert lines[-1].startswith(f"aime24 {done}/400 episodes, {rate:.1f}/s, {left} left, reward")


def test_progress_of_a_short_job_is_one_line_and_one_sample_gives_no_time_left(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    with console.progress("demo", total=40, unit="steps") as bar:
        now[0] = 20.0
        bar.advance()
        assert capsys.readouterr().err == "demo 1/40 steps\n"
        bar.advance(38)
        assert capsys.readouterr().err == ""
        now[0] = 80.0
        bar.advance()
    assert capsys.readouterr().err == "demo 40/40 steps, 2.0 s each, took 1:20\n"  # not twice


def test_progress_of_a_finished_job_says_so(capsys):
    with console.progress("aime24", total=480, done=480):
        pass
    assert capsys.readouterr().err == "aime24 480/480 episodes, all there already\n"


def test_clock():
    assert [console._clock(s) for s in (5, 65, 3600, 7265.4)] == [
        "0:05",
        "1:05",
        "1:00:00",
        "2:01:05",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_on_a_terminal_redraws_at_a_limited_rate():
    import pty

    code = (
        "from mas_envs.console import progress\n"
        "with progress('arith', total=20_000) as bar:\n"
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


def test_key_values_are_json_or_text():
    given = ["rounds=2", "prompts=short", "penalty={}", "text=a=b", "on=true", "none="]
    found = {"rounds": 2, "prompts": "short", "penalty": {}, "text": "a=b", "on": True, "none": ""}
    assert console.key_values(given, "--arg") == found
    for wrong in ("rounds", "=2", ""):
        with pytest.raises(UserError, match=r"--arg .*key=value"):
            console.key_values([wrong], "--arg")
