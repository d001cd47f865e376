"""`mas-leaderboard export`: the whole leaderboard as files that any host can show."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from leaderboard.cli.serve import Database, Folder
from mas_envs.errors import MachineryError, UserError

if TYPE_CHECKING:
    from leaderboard.pages.reader import ReaderPage
    from leaderboard.store import Store

EXAMPLES = [
    "mas-leaderboard export site --folder board",
    "mas-leaderboard import submissions --folder board && \\",
    "    mas-leaderboard export site --folder board    # in the CI of a repository",
]
MOST = 1_000_000  # of either number
BlobsUrl = Annotated[str, typer.Option(help="Folder or fsspec URL; in the folder without it.")]


def export(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write the site into.")],
    folder: Folder = Path("leaderboard-server"),
    database: Database = "",
    blobs: BlobsUrl = "",
    pages: Annotated[
        int, typer.Option(min=0, max=MOST, help="Pages of conversations per submission.")
    ] = 20,
    compared: Annotated[
        int,
        typer.Option(
            min=0, max=MOST, help="Best submissions of a suite that are compared pairwise."
        ),
    ] = 12,
) -> None:
    """Write a static site and its JSON; the same submissions give the same bytes."""
    from leaderboard.pages.site import export_site
    from leaderboard.record import Record
    from leaderboard.settings import Settings
    from leaderboard.store import open_store
    from leaderboard.store.submissions import records

    if not folder.is_dir() and not database:
        raise UserError(f"--folder {folder}: there is no such folder; give that of serve or import")
    store = open_store(Settings(folder=folder, database=database, blobs=blobs))
    decoder = msgspec.json.Decoder(Record)
    with store.database.read() as session:
        found = [decoder.decode(content) for _, content in records(session)]
    written = export_site(
        found, out, lambda record: _stored_pages(store, record.id), pages=pages, compared=compared
    )
    typer.echo(f"{out / 'index.html'}: {len(found)} submissions, {len(written)} files")


def _stored_pages(store: Store, number: str) -> Iterator[ReaderPage]:
    """The pages of conversations that were made when the submission was verified."""
    from leaderboard.pages.reader import ReaderPage
    from leaderboard.store.conversations import read_page
    from leaderboard.store.submissions import find

    with store.database.read() as session:
        row = find(session, number)
    assert row is not None, number
    for page in count(1):
        try:
            content = read_page(store.blobs, row.sha256, row.attempts, page)
        except MachineryError as error:
            raise MachineryError(f"submission {number}: {error}") from None
        if content is None:
            return
        yield msgspec.json.decode(content, type=ReaderPage)
