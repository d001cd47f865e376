"""`mas-leaderboard token create | list | revoke`, on the machine of the server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leaderboard.cli.serve import Database, Folder
from leaderboard.settings import Settings
from mas_envs.console import command_line
from mas_envs.errors import UserError
from retrievers.shell.progress import say

ACTOR = "command line"
MOST = 2**31 - 1  # of an id
app = command_line(
    "Rights to submit and to administer, by tokens.",
    [
        "mas-leaderboard token create --folder board --name 'our lab'",
        "mas-leaderboard token list --folder board",
        "mas-leaderboard token revoke 3 --folder board",
    ],
)


@app.command()
def create(
    name: Annotated[str, typer.Option(help="Whose it is; the audit log names it.")],
    scope: Annotated[str, typer.Option(help="submit or admin.")] = "submit",
    days: Annotated[float, typer.Option(help="Until it expires; 0: never.")] = 365,
    folder: Folder = Path("leaderboard-server"),
    database: Database = "",
) -> None:
    """Create a token and print it, this once; only its hash is kept."""
    from leaderboard.store import open_store
    from leaderboard.store.tokens import create_token

    store = open_store(Settings(folder=folder, database=database))
    with store.database.write() as session:
        token, secret = create_token(session, name, scope, days or None, ACTOR)
    say(f"token {token.id} of {token.name} ({token.scope}); it is not shown again:")
    typer.echo(secret)


@app.command("list")
def list_tokens(folder: Folder = Path("leaderboard-server"), database: Database = "") -> None:
    """List all tokens."""
    from leaderboard.store import open_store
    from leaderboard.store.tokens import listed_tokens

    store = open_store(_existing(folder, database))
    table = Table("id", "name", "scope", "created", "expires", "revoked")
    with store.database.read() as session:
        for one in listed_tokens(session):
            days = (_day(moment) for moment in (one.created, one.expires, one.revoked))
            table.add_row(str(one.id), escape(one.name), one.scope, *days)
    Console().print(table)


@app.command()
def revoke(
    number: Annotated[
        int, typer.Argument(metavar="ID", min=1, max=MOST, help="As token list shows it.")
    ],
    folder: Folder = Path("leaderboard-server"),
    database: Database = "",
) -> None:
    """Revoke a token: it is worth nothing from this moment."""
    from leaderboard.store import open_store
    from leaderboard.store.tokens import revoke_token

    store = open_store(_existing(folder, database))
    with store.database.write() as session:
        if not revoke_token(session, number, ACTOR):
            raise UserError(f"there is no token {number}; mas-leaderboard token list shows them")
    say(f"token {number} is revoked")


def _existing(folder: Path, database: str) -> Settings:
    """Raises `UserError` instead of making an empty leaderboard for a mistyped folder."""
    if not database and not folder.is_dir():
        raise UserError(f"--folder {folder}: no leaderboard is there")
    return Settings(folder=folder, database=database)


def _day(moment: float | None) -> str:
    return "" if moment is None else time.strftime("%Y-%m-%d", time.gmtime(moment))
