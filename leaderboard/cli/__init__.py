"""`mas-leaderboard`: hand in a run, recompute one, serve the board. One file per command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from leaderboard.cli import backup, export, import_, pack, serve, submit, token, verify
from mas_envs.console import command_line, epilog
from mas_envs.errors import UserError

SERVER = ("sqlalchemy", "alembic", "fastapi", "uvicorn", "jinja2", "fsspec", "multipart")


def _with_server(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command that needs what only a server needs. It raises `UserError` where that is missing,
    instead of Python's traceback.
    """

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ModuleNotFoundError as error:
            name = (error.name or "").partition(".")[0]
            if name not in SERVER:
                raise
            raise UserError(f"this needs pip install 'mas-gym[leaderboard]' ({name})") from None

    return command


app = command_line(
    "Hand in a run, and have every number of a submission recomputed.",
    [
        "mas-leaderboard pack runs/aime24 -o sub.zip --system pair --team 'our lab'",
        "mas-leaderboard verify sub.zip --data suites",
        "mas-leaderboard submit sub.zip --to https://board.example.org --wait",
        "mas-leaderboard serve --folder board --data suites",
        "mas-leaderboard import submissions --folder board --data suites",
        "mas-leaderboard export site --folder board",
    ],
)
for name, module, function in (
    ("pack", pack, pack.pack),
    ("verify", verify, verify.verify),
    ("submit", submit, submit.submit),
    ("serve", serve, _with_server(serve.serve)),
    ("import", import_, _with_server(import_.import_folder)),
    ("export", export, _with_server(export.export)),
    ("backup", backup, _with_server(backup.backup)),
    ("restore", backup, _with_server(backup.restore)),
):
    app.command(name, epilog=epilog(module.EXAMPLES))(function)
for one in token.app.registered_commands:
    assert one.callback is not None
    one.callback = _with_server(one.callback)
app.add_typer(token.app, name="token")
