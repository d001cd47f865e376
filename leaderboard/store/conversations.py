"""A submission's pages of conversations, as two blobs that any page can be read from by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import zstandard

from leaderboard.store.blobs import Blobs
from mas_envs.errors import MachineryError

if TYPE_CHECKING:
    from leaderboard.pages.reader import ReaderPage

CONVERSATIONS, INDEX = "conversations", "index"  # the files, and the blobs' suffixes
LONGEST = 2**28  # bytes of a page; ours are below a hundredth of it


def write_pages(pages: Iterable[ReaderPage], folder: Path) -> None:
    """A zstd frame for each page, and as JSON where each begins and the last ends."""
    bounds = [0]
    with (folder / CONVERSATIONS).open("wb") as file:
        for page in pages:
            frame = zstandard.ZstdCompressor(level=6, write_checksum=True).compress(
                msgspec.json.encode(page)
            )
            file.write(frame)
            bounds.append(bounds[-1] + len(frame))
    (folder / INDEX).write_bytes(msgspec.json.encode(bounds))


def keep_pages(blobs: Blobs, folder: Path, sha256: str) -> None:
    """Put what `write_pages` wrote, if anything, into the store; the index last."""
    for name in (CONVERSATIONS, INDEX):
        if (folder / name).exists():
            blobs.keep(folder / name, f"{sha256}.{name}")


def drop_pages(blobs: Blobs, sha256: str) -> None:
    """Remove a submission's pages, if it has any; the index first. Raises `MachineryError`."""
    for name in (INDEX, CONVERSATIONS):
        blobs.remove(f"{sha256}.{name}")


def count_pages(blobs: Blobs, sha256: str, attempt: int) -> int:
    """How many there are. `attempt`: another number makes the index be read again.

    Raises `MachineryError` for a damaged index, as the others do.
    """
    return len(_bounds(blobs, sha256, attempt)) - 1


def read_page(blobs: Blobs, sha256: str, attempt: int, number: int) -> bytes | None:
    """A `ReaderPage` as JSON, counting from 1; None if there is none. Raises `MachineryError`."""
    bounds = _bounds(blobs, sha256, attempt)
    if not 0 < number < len(bounds):
        return None
    content = _page(blobs, sha256, *bounds[number - 1 : number + 1])
    _decoded(content, sha256)
    return content


def all_pages(blobs: Blobs, sha256: str) -> Iterator[ReaderPage]:
    """All pages of a submission, in order; none if it has none. Raises `MachineryError`."""
    for start, end in pairwise(_bounds(blobs, sha256, -1)):
        yield _decoded(_page(blobs, sha256, start, end), sha256)


def _page(blobs: Blobs, sha256: str, start: int, end: int) -> bytes:
    frame = blobs.part(f"{sha256}.{CONVERSATIONS}", start, end - start)
    try:
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=LONGEST)
    except zstandard.ZstdError as error:
        raise _damaged(sha256, CONVERSATIONS, error) from None


def _decoded(content: bytes, sha256: str) -> ReaderPage:
    from leaderboard.pages.reader import ReaderPage

    try:
        return msgspec.json.decode(content, type=ReaderPage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(sha256, CONVERSATIONS, error) from None


def _damaged(sha256: str, name: str, error: object) -> MachineryError:
    return MachineryError(f"blob {sha256}.{name} is damaged ({error}); have it verified again")


@lru_cache(maxsize=64)
def _bounds(blobs: Blobs, sha256: str, _: int) -> list[int]:
    name = f"{sha256}.{INDEX}"
    size = blobs.size(name)
    if size is None:  # accepted without any, as by an import
        return [0]
    try:
        bounds = msgspec.json.decode(blobs.part(name, 0, size), type=list[int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(sha256, INDEX, error) from None
    if bounds[:1] != [0] or not all(0 < end - start < LONGEST for start, end in pairwise(bounds)):
        raise _damaged(sha256, INDEX, "no ascending places")
    return bounds
