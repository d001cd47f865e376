"""The texts in one corpus file: decompressed, and out of a tar archive, in constant memory."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import PurePosixPath
from typing import IO, Any, Self

Told = Callable[[int], None]  # the bytes of the file that were read
BLOCK = 2**16  # bytes read at once
TEXT = 2**20  # bytes of text at once, whatever a few compressed bytes stand for
ZSTD_BLOCK = 2**10  # its decoder takes no limit, but 4 bytes stand for 128 kB of text at most
ZSTD_WINDOW = 2**27  # bytes a decoder may keep, as for zstd's own tool
LONGEST = 2**26  # bytes of a line; more is no passage but a file without line ends
META = 2**20  # bytes of a tar's long names and the like, which tarfile reads at once
_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_AGAIN = "make or fetch the file again"


class Unreadable(Exception):
    """Why a file cannot be read on."""


def texts_in(file: io.BufferedReader, told: Told) -> Iterator[tuple[str, Iterator[bytes]]]:
    """(name, content in pieces) of each text: the file's own, without a name, or those in a tar.

    Compression is told by the first bytes. Of an archive (wiki-18.jsonl.gz is one) the regular
    files that are not hidden are read in their order; nothing is extracted. A content must be read
    before the next is asked for, and raises Unreadable itself. A file is read to its last byte.
    """
    content, begin = _decompressed(file, told), b""
    while len(begin) < tarfile.BLOCKSIZE and (piece := next(content, None)) is not None:
        begin += piece
    content = chain([begin], content)
    # With the byte that follows it: the word alone stands in "mustard", too.
    if begin[257:].startswith((b"ustar\0", b"ustar  \0")):
        yield from _members(content)
    else:
        yield "", content


def lines_in(content: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a content, without their ends. Raises Unreadable for one over `LONGEST`."""
    begun: list[bytes] = []
    length = 0
    for piece in content:
        begun.append(piece)
        length += len(piece)
        if b"\n" in piece:
            *lines, rest = b"".join(begun).split(b"\n")
            for line in lines:
                _check_length(len(line))
                yield line
            begun, length = [rest], len(rest)
        _check_length(length)
    if length:
        yield b"".join(begun)


def _check_length(length: int) -> None:
    if length > LONGEST:
        raise Unreadable(f"a line of more than {LONGEST:,} bytes; write one passage a line")


def _decompressed(file: io.BufferedReader, told: Told) -> Iterator[bytes]:
    """The text of a file in pieces of at most `TEXT` bytes, none of them empty."""
    begin = file.peek(4)[:4]
    if begin == _ZIP:
        raise Unreadable("a zip archive; unpack it and give the file that was in it")
    kind = "gzip" if begin.startswith(_GZIP) else "zstd" if begin == _ZSTD else ""
    size = ZSTD_BLOCK if kind == "zstd" else BLOCK
    position, decoder = 0, None
    while block := file.read(size):
        position += len(block)
        told(position)
        if not kind:
            yield block
            continue
        full = False  # the decoder may hold more text, though it has all of the block
        while block or full:
            if decoder is None:  # another member or frame, as `cat a.gz b.gz` makes them
                block = block.lstrip(b"\0") if kind == "gzip" else block  # padding is allowed
                decoder = _decoder(kind) if block else None
                continue
            try:
                text, block = _decoded(kind, decoder, block)
            except Exception as error:  # zlib.error, ZstdError
                raise Unreadable(_damaged(kind, position, error)) from None
            full = kind == "gzip" and len(text) == TEXT
            if decoder.eof:
                decoder, full = None, False
            for start in range(0, len(text), TEXT):
                yield text[start : start + TEXT]
    if decoder is not None:
        raise Unreadable(f"the file ends inside its {kind} data, at byte {position:,}; {_AGAIN}")


def _decoder(kind: str) -> Any:
    if kind == "gzip":
        return zlib.decompressobj(wbits=31)
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()


def _decoded(kind: str, decoder: Any, block: bytes) -> tuple[bytes, bytes]:
    """(text, what is left of the block)."""
    if kind == "zstd":
        text = decoder.decompress(block)
        return text, decoder.unused_data if decoder.eof else b""
    text = decoder.decompress(block, TEXT)
    return text, decoder.unused_data if decoder.eof else decoder.unconsumed_tail


def _damaged(kind: str, position: int, error: Exception) -> str:
    if "too much memory" in str(error):
        fix = "compress it again without --long or --ultra"
        return f"its zstd data need a window of more than {ZSTD_WINDOW:,} bytes; {fix}"
    return f"damaged {kind} data before byte {position:,}: {error}; {_AGAIN}"


def _members(content: Iterator[bytes]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Name and content of each file in a tar archive, which is read as a stream."""
    stream = io.BufferedReader(_Stream(content), BLOCK)
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
            for member in archive:
                hidden = PurePosixPath(member.name).name.startswith(".")  # ._a of macOS, say
                if member.isfile() and not hidden and (file := archive.extractfile(member)):
                    name = member.name if member.name.isprintable() else ascii(member.name)
                    yield name, _blocks(file)
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise Unreadable(_damaged_tar(error)) from None
    while stream.read(BLOCK):  # what comes after the archive may be damaged, too
        pass


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    try:
        while block := file.read(BLOCK):
            yield block
    except tarfile.TarError as error:
        raise Unreadable(_damaged_tar(error)) from None


def _damaged_tar(error: Exception) -> str:
    return f"damaged tar archive: {error}; {_AGAIN}"


class _Stream(io.RawIOBase):
    """Pieces as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._piece = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._piece:
            self._piece = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._piece))
        buffer[:count], self._piece = self._piece[:count], self._piece[count:]
        return count


class _Member(tarfile.TarInfo):
    """Refuses what tarfile takes for the end of an archive without being it, and what it loads."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            member = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not any(buf):  # so an archive ends
                raise
            raise Unreadable(_damaged_tar(error)) from None
        if member.size < 0 or (member.size > META and not member.isreg()):
            raise Unreadable(_damaged_tar(ValueError(f"a header of {member.size:,} bytes")))
        return member
