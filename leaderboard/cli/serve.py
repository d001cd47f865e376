"""`mas-leaderboard serve`: the server and its worker."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from leaderboard.settings import GIB, Settings
from mas_envs.errors import UserError
from retrievers.shell.progress import say

EXAMPLES = [
    "mas-leaderboard token create --folder board --name me --scope admin",
    "mas-leaderboard serve --folder board --data suites",
    "mas-leaderboard serve --folder board --database postgresql://board@db/board \\",
    "    --blobs s3://board/blobs --host 0.0.0.0",
]
STOP_S = 5  # until answers under way are cut off

Folder = Annotated[Path, typer.Option(help="Where the server keeps everything.")]
Database = Annotated[
    str,
    typer.Option(
        envvar="MAS_LEADERBOARD_DATABASE",
        help="An SQLAlchemy URL; without it, an SQLite file in the folder.",
        show_default=False,
    ),
]


Retrievers = Annotated[
    list[str] | None,
    typer.Option("--retriever", metavar="INDEX",
                 help="An index or corpus at hand: runs that searched it are searched again. "
                 "Repeatable."),
]  # fmt: skip


def serve(
    folder: Folder = Path("leaderboard-server"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
    database: Database = "",
    blobs: Annotated[
        str, typer.Option(help="Another folder for the zips, or an fsspec URL (s3://…).")
    ] = "",
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of suites' files (mas-bench fetch): golds of our own."),
    ] = None,
    retriever: Retrievers = None,
    workers: Annotated[
        int, typer.Option(min=0, max=64, help="Submissions to verify at a time; 0: none here.")
    ] = 1,
    upload_mb: Annotated[int, typer.Option(min=1, help="Largest submission, in MB.")] = 1026,
    requests_per_minute: Annotated[int, typer.Option(min=1, help="Of one address.")] = 1200,
    uploads_per_hour: Annotated[int, typer.Option(min=1, help="Of one token.")] = 60,
    verify_seconds: Annotated[float, typer.Option(min=1, help="For one submission.")] = 3600,
    verify_gb: Annotated[
        float, typer.Option(min=0.5, help="Address space for verifying one, in GiB.")
    ] = 4,
    lease_seconds: Annotated[
        float,
        typer.Option(min=0.1, help="After which a worker that was killed is replaced."),
    ] = 60,
) -> None:
    """Serve the leaderboard until a signal comes; the database is brought up to date first.

    Behind a proxy on this machine, X-Forwarded-For is believed.
    """
    if data is not None and not data.is_dir():
        raise UserError(f"--data {data}: no such folder; mas-bench fetch makes one")
    settings = Settings(
        folder=folder,
        database=database,
        blobs=blobs,
        data=data,
        retrievers=tuple(retriever or ()),
        workers=workers,
        upload_bytes=upload_mb * 10**6,
        requests_per_minute=requests_per_minute,
        uploads_per_hour=uploads_per_hour,
        verify_seconds=verify_seconds,
        verify_bytes=int(verify_gb * GIB),
        lease_seconds=lease_seconds,
    )
    _run(settings, host, port)


def _run(settings: Settings, host: str, port: int) -> None:
    """Raises `UserError` if the address cannot be had."""
    import uvicorn

    from leaderboard.app import make_app
    from leaderboard.app.connections import bounded
    from leaderboard.store.tokens import listed_tokens

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for name in ("alembic", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
    os.umask(0o077)
    app = make_app(settings)
    with app.state.store.database.read() as session:
        if not any(token.scope == "admin" for token in listed_tokens(session)):
            say("note: nobody can administer it yet: mas-leaderboard token create "
                f"--folder {settings.folder} --name NAME --scope admin")  # fmt: skip
    config = uvicorn.Config(
        app, host=host, port=port, log_config=None, timeout_graceful_shutdown=STOP_S,
        server_header=False, access_log=False,
        http=bounded(settings.head_seconds, settings.connections),  # h11 bounds a head's size
    )  # fmt: skip
    try:
        listener = config.bind_socket()
    except SystemExit:
        raise UserError(f"cannot listen on {host}, port {port}; is it in use?") from None
    listener.listen(config.backlog)  # whoever is told that it is ready may connect
    where = f"[{host}]" if ":" in host else host
    say(f"ready: http://{where}:{listener.getsockname()[1]}/")
    uvicorn.Server(config).run(sockets=[listener])
