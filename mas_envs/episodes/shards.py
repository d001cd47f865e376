"""A shard: zstd frames of JSON lines, one episode a line. Each frame can be read by itself.

A frame is appended in one write, so a process killed in between leaves at most one torn frame, at
the end. It is dropped and reported; damage anywhere else is an error.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import zstandard

from mas_envs.episodes.schema import Episode, decode
from mas_envs.errors import BadFile, UserError


class TornFrame(UserWarning):
    """A shard ended in the middle of a frame (its writer was killed); that frame is dropped."""


def shards(folder: Path) -> list[Path]:
    """The shards of a folder, in order."""
    return sorted(folder.glob("episodes-*.jsonl.zst"))


def shard_path(folder: Path, number: int) -> Path:
    """The shard of that number."""
    return folder / f"episodes-{number:05d}.jsonl.zst"


def shard_number(shard: Path) -> int:
    """The inverse of `shard_path`."""
    return int(shard.name.removeprefix("episodes-").partition(".")[0])


def pack_frame(lines: list[bytes], level: int = 3) -> bytes:
    """One frame of lines, with a checksum; the same bytes for the same lines."""
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(b"".join(lines))


def frames(shard: Path) -> Iterator[tuple[int, int, bytes]]:
    """(start, end, content) of each whole frame; ends quietly before a torn one.

    Raises `BadFile` for a frame that is damaged, not merely cut off.
    """
    with shard.open("rb") as file:
        start, rest = 0, b""
        while rest := rest or file.read(1 << 20):
            decompressor = zstandard.ZstdDecompressor().decompressobj()
            parts, size = [], 0
            while not decompressor.eof and (chunk := rest or file.read(1 << 20)):
                rest, size = b"", size + len(chunk)
                try:
                    parts.append(decompressor.decompress(chunk))
                except zstandard.ZstdError as error:
                    raise _damaged(shard, start, str(error)) from None
            if not decompressor.eof:
                if _frame_behind(shard, start):
                    raise _damaged(shard, start, "whole frames follow")
                return
            rest = decompressor.unused_data
            end = start + size - len(rest)
            yield start, end, b"".join(parts)
            start = end


def _damaged(shard: Path, start: int, why: str) -> BadFile:
    fix = "restore it from a copy; or move it away, and what it holds is missing"
    return BadFile(shard, f"damaged at byte {start} ({why})", fix=fix)


def _frame_behind(shard: Path, start: int) -> bool:
    """Whether a whole frame begins behind byte `start`: then what lies there was not cut off."""
    with shard.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        while (start := content.find(zstandard.FRAME_HEADER, start + 1)) >= 0:
            decompressor = zstandard.ZstdDecompressor().decompressobj()
            with contextlib.suppress(zstandard.ZstdError):
                for place in range(start, len(content), 1 << 20):
                    decompressor.decompress(content[place : place + (1 << 20)])
                    if decompressor.eof:
                        return True
    return False


def shard_lines(shard: Path) -> Iterator[bytes]:
    """The lines of all whole frames; warns `TornFrame` of a torn one."""
    end = 0
    for _, end, content in frames(shard):  # noqa: B007
        yield from content.splitlines()
    if end < shard.stat().st_size:
        warnings.warn(TornFrame(f"{shard}: torn frame at byte {end} dropped"), stacklevel=3)


def cut_torn_frame(shard: Path) -> None:
    """Truncate the shard behind its last whole frame; warns `TornFrame` if something was there."""
    end = 0
    for _, end, _ in frames(shard):  # noqa: B007
        pass
    if end < shard.stat().st_size:
        warnings.warn(TornFrame(f"{shard}: torn frame at byte {end} cut off"), stacklevel=3)
        os.truncate(shard, end)


def decode_line(path: Path, number: int, line: bytes) -> Episode:
    """The episode on a line. Raises `BadFile` naming file and line."""
    try:
        return decode(line)
    except UserError as error:
        raise BadFile(path, str(error), number) from None
