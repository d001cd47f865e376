"""The whole leaderboard as files that any host, or file://, can show; the same records, same bytes.

index.html, math/, search/, submit/                 pages
submission/ID/, submission/ID/conversations/N/      one submission, and what its agents said
compare/ID/ID/                                      each two of a suite's best
static/                                             one style sheet, one script
api/                                                tables and records as JSON
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leaderboard.pages.board import TRACKS, Board, board
from leaderboard.pages.comparing import compare
from leaderboard.pages.reader import ReaderPage
from leaderboard.pages.render import (
    STATIC,
    Pages,
    compare_place,
    other,
    reader_place,
    submission_place,
)
from mas_envs.errors import BadFile, UserError

if TYPE_CHECKING:
    from leaderboard.record import Record

MARK = "api/index.json"  # what makes a folder one of ours, to be replaced
SHOWN = ("recomputed", "self-reported")

Conversations = Callable[["Record"], Iterable[ReaderPage]]


def export_site(
    records: Iterable[Record],
    out: Path,
    conversations: Conversations = lambda record: (),
    *,
    pages: int = 20,
    compared: int = 12,
) -> list[Path]:
    """Write the site into the folder `out`, and return its files.

    `conversations` gives the pages of a submission's conversations (`reader_pages`), of which the
    first `pages` are written; each two of the `compared` best submissions of a suite get a page
    that compares them. What waits or was rejected is left out.

    A folder of an earlier export is replaced when the new one is whole; any other that is not empty
    raises `UserError`. Raises `BadFile` where nothing can be written.
    """
    _check_ours(out)
    shown = sorted((one for one in records if one.status in SHOWN), key=lambda one: one.id)
    boards = [board(shown, track) for track in TRACKS]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
            whole = Path(folder) / "site"
            names = []
            for name, content in _files(shown, boards, conversations, pages, compared):
                path = whole / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                names.append(name)
            _replace(out, whole, Path(folder) / "before")
    except OSError as error:
        raise BadFile(out, error.strerror or "cannot be written") from None
    return [out / name for name in sorted(names)]


def comparable(boards: Iterable[Board], best: int) -> dict[str, list[str]]:
    """Suite → the submissions of its `best` rows that have ranks, best first."""
    found: dict[str, list[tuple[float, str]]] = {}
    for table in boards:
        for row in table.rows:
            for suite, cell in row.cells.items():
                if cell.submission is not None and cell.rank is not None:
                    found.setdefault(suite, []).append((-cell.avg.value, cell.submission))
    return {suite: [name for _, name in sorted(of)[:best]] for suite, of in found.items()}


def as_json(value: Any) -> bytes:
    """Readable JSON, the same bytes for the same value."""
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"


# ---- the files ---------------------------------------------------------------------------------


def _files(
    records: Sequence[Record],
    boards: Sequence[Board],
    conversations: Conversations,
    most: int,
    compared: int,
) -> Iterator[tuple[str, bytes]]:
    pages = Pages(static=True)
    by_id = {record.id: record for record in records}
    pairs = comparable(boards, compared)
    partners = {one: of for of in pairs.values() for one in of}
    assets = resources.files("leaderboard.pages") / "static"
    for name in STATIC:
        yield f"static/{name}", (assets / name).read_bytes()
    yield _page("", pages.home(boards, records))
    yield _page("submit/", pages.submit())
    for table in boards:
        yield _page(f"{table.track}/", pages.board(table, list(partners)))
        yield f"api/tracks/{table.track}.json", as_json(table)
    for record in records:
        number = 0
        for page in islice(conversations(record), most):
            number = page.number
            kept = msgspec.structs.replace(page, pages=min(page.pages, most))
            yield _page(reader_place(record.id, number), pages.conversations(record, kept))
        others = [other(by_id[one]) for one in partners.get(record.id, ())]
        place = submission_place(record.id)
        yield _page(place, pages.submission(record, others, conversations=number > 0))
        yield f"api/submissions/{record.id}.json", as_json(record)
    for of in pairs.values():
        for pair in combinations(sorted(of), 2):
            a, b = (by_id[one] for one in pair)
            yield _page(compare_place(a.id, b.id), pages.compare(a, b, compare(a, b)))
    yield MARK, as_json({"submissions": list(by_id), "tracks": [one.track for one in boards]})


def _page(place: str, html: str) -> tuple[str, bytes]:
    return f"{place}index.html", html.encode("utf-8")


def _replace(out: Path, whole: Path, before: Path) -> None:
    """Put `whole` in the place of `out`; interrupted in between, `out` is what it was."""
    if out.exists():
        out.rename(before)
    try:
        whole.rename(out)
    except BaseException:  # Ctrl-C, too: the folder that `before` is in goes away
        if before.exists() and not out.exists():
            before.rename(out)
        raise


def _check_ours(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise BadFile(out, "not a folder")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).is_file():
        raise UserError(f"{out} is not empty and no earlier export; give another folder")
