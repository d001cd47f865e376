"""What an installation without the extra "leaderboard" can do, and what it says otherwise."""

import json
import subprocess
import sys

import pytest

SERVERS = ("sqlalchemy", "alembic", "fastapi", "starlette", "uvicorn", "jinja2", "fsspec")
BLOCK = """
import importlib.abc, importlib.machinery, json, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
"""
RUN = """
sys.meta_path.insert(0, Missing())
from leaderboard.cli import app
for args in COMMANDS:
    sys.argv[1:] = args
    try:
        app()
    except SystemExit as end:
        print("ended with", end.code, file=sys.stderr)
"""


def python(program, folder, **values):
    """In a process of its own: (its output, its lines on standard error)."""
    given = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    done = subprocess.run(
        [sys.executable, "-c", given + program], cwd=folder, capture_output=True, text=True,
        timeout=50, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr.splitlines()


@pytest.mark.parametrize("blocked", [("sqlalchemy",), ("fastapi", "uvicorn")], ids=str)
def test_a_server_says_what_to_install(tmp_path, blocked):
    (tmp_path / "subs").mkdir()
    (tmp_path / "subs" / "a.zip").write_bytes(b"")
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "leaderboard.sqlite").write_bytes(b"")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "leaderboard.sqlite").write_bytes(b"")
    folder = ["--folder", "board"]
    commands = [["serve", *folder, "--port", "0"]]
    if "sqlalchemy" in blocked:
        commands += [
            ["token", "create", "--name", "me", *folder], ["token", "list", *folder],
            ["import", "subs", *folder], ["export", "site", *folder],
            ["backup", "out", *folder], ["restore", "saved", *folder],
        ]  # fmt: skip
    out, told = python(BLOCK + RUN, tmp_path, BLOCKED=blocked, COMMANDS=commands)
    assert out == "" and len(told) == 2 * len(commands), told
    for line, end in zip(told[::2], told[1::2], strict=True):
        assert "needs pip install 'mas-gym[leaderboard]'" in line and end == "ended with 2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board", "saved", "subs"]


def test_whoever_submits_needs_none_of_it(tmp_path, sums_submission):
    """Nor does it load anything heavy, where it is installed."""
    show = "\nprint(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    commands = [["--help"], ["pack", "--help"], ["submit", "--help"], ["serve", "--help"],
                ["verify", "no.zip"], ["pack", "no", "-o", "x.zip", "--system", "s", "--team", "t"],
                ["submit", "no.zip", "--to", "http://127.0.0.1:9"]]  # fmt: skip
    quiet = "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n"
    run = quiet + "".join(f"    {line}\n" for line in RUN.strip().splitlines())
    verified = "from pathlib import Path\nimport leaderboard.verify\n" + (
        "assert leaderboard.verify.verify(Path(SUBMISSION), processes=1).manifest\n"
    )
    out, told = python(
        BLOCK + verified + run + show, tmp_path, BLOCKED=SERVERS, COMMANDS=commands,
        SUBMISSION=str(sums_submission),
    )  # fmt: skip
    ends = [line for line in told if line.startswith("ended with")]
    assert ends == ["ended with 0"] * 4 + ["ended with 2"] * 3, told
    assert not {*SERVERS, "torch", "ray", "vllm"} & set(json.loads(out))
