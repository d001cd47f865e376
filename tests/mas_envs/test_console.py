"""How every command line ends, and what its progress looks like without and with a terminal."""

import signal
import subprocess
import sys

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


def test_progress_of_a_finished_job_says_so(capsys):
    with console.progress("aime24", total=480, done=480):
        pass
    assert capsys.readouterr().err == "aime24 480/480 episodes, all there already\n"


def test_key_values_are_json_or_text():
    given = ["rounds=2", "prompts=short", "penalty={}", "text=a=b", "on=true", "none="]
    found = {"rounds": 2, "prompts": "short", "penalty": {}, "text": "a=b", "on": True, "none": ""}
    assert console.key_values(given, "--arg") == found
    for wrong, fix in (("rounds", "--arg rounds=VALUE"), ("=2", "key=value"), ("", "key=value")):
        with pytest.raises(UserError, match=f"--arg.*; write it as {fix}"):
            console.key_values([wrong], "--arg")
