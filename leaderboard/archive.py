"""Reading a zip that somebody else made, in bounded memory, without extracting anything.

Everything is refused before the first byte is decompressed if the directory of the zip says so, and
while reading if the content turns out larger than it said.
"""

from __future__ import annotations

import hashlib
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import zstandard

from leaderboard.findings import printable
from leaderboard.manifest import EPISODES, MANIFEST, PROMPTS
from mas_envs.errors import BadFile

CHUNK = 1 << 16
ZSTD_WINDOW = 2**23  # bytes a zstd frame may make us keep; our own frames need 2 MiB
DEFLATE_RATIO = 100  # of a zip member, which is compressed already
LARGEST = {MANIFEST: 2**20, PROMPTS: 2**20, EPISODES: 2**30}  # all prompts together
PROMPT_FILE = re.compile(r"prompts(?:\.\w{1,64})?\.toml", re.ASCII)  # of all, or of a role or agent
MOST_PROMPTS = 32  # files
HEADER = 30  # bytes before each member, and its name
MARKS = (b"[", b"{", b",")
DIRECTORY = (2 + MOST_PROMPTS) * 160  # bytes: 46 for a member, its name, and what systems add
# What reading a broken zip may raise: besides its own errors, whatever its fields lead to.
DAMAGE = (
    zipfile.BadZipFile, zlib.error, zstandard.ZstdError, struct.error,
    EOFError, OSError, NotImplementedError, UnicodeDecodeError, OverflowError,
)  # fmt: skip


class Limits(NamedTuple):
    """What a submission may cost the reader, in bytes."""

    episodes: int = 16 * 2**30  # all conversations together, decompressed
    line: int = 16 * 2**20  # one conversation
    marks: int = 1_000_000  # brackets and commas in a line: a value in memory is 20 times its text
    ratio: int = 1000  # decompressed : compressed, once past the first 16 MiB


LIMITS = Limits()


class Archive:
    """A submission's zip, opened. Raises `BadFile` for anything but our members, plainly stored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open(path)
        try:
            _check_directory(path, self._file)
            self._zip = zipfile.ZipFile(self._file)
            for info in self._zip.infolist():
                _check_member(path, info)
            names = self._zip.namelist()
            if len(set(names)) < len(names):
                raise BadFile(path, "two members of one name")
            _check_prompts(path, self._zip.infolist())
            _check_layout(path, self._zip)
            if missing := {MANIFEST, EPISODES} - set(names):
                fix = "pack one with mas-leaderboard pack"
                raise BadFile(path, f"no {' and no '.join(sorted(missing))} in it", fix=fix)
        except BadFile:
            self._file.close()
            raise
        except DAMAGE as error:
            self._file.close()
            raise _damaged(path, error) from None
        self.names = names

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a member, never more than it declares."""
        try:
            with self._zip.open(name) as member:
                while chunk := member.read(CHUNK):
                    yield chunk
        except DAMAGE as error:
            raise _damaged(f"{self.path}: {name}", error) from None

    def read(self, name: str) -> bytes:
        """A small member as a whole (its declared size was checked)."""
        return b"".join(self.chunks(name))

    def digest(self, name: str) -> tuple[str, int]:
        """(SHA-256, size) of a member."""
        digest, size = hashlib.sha256(), 0
        for chunk in self.chunks(name):
            digest.update(chunk)
            size += len(chunk)
        return digest.hexdigest(), size

    def lines(self, limits: Limits = LIMITS) -> Iterator[bytes]:
        """The lines of the episodes, decompressed as they are read. Raises `BadFile`."""
        where = f"{self.path}: {EPISODES}"
        parts: list[bytes] = []  # of the line that is not complete yet
        length, number = 0, 1
        for chunk in self._decompressed(where, limits):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                line = b"".join([*parts, end])
                if len(line) > limits.marks and sum(map(line.count, MARKS)) > limits.marks:
                    raise BadFile(where, f"a line of more than {limits.marks} values", number)
                yield line
                parts, length, number = [], 0, number + 1
            parts.append(rest)
            length += len(rest)
            if length > limits.line:
                raise BadFile(where, f"a line of more than {limits.line} bytes", number)
        if length:
            raise BadFile(where, "the last line is not complete", number)

    def _decompressed(self, where: str, limits: Limits) -> Iterator[bytes]:
        given = 0
        decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
        try:
            with (
                self._zip.open(EPISODES) as member,
                decompressor.stream_reader(member, read_size=CHUNK, read_across_frames=True) as out,
            ):
                while chunk := out.read(CHUNK):
                    given += len(chunk)
                    if given > limits.episodes:
                        raise BadFile(where, f"more than {limits.episodes} bytes, decompressed")
                    if given > 2**24 and given > limits.ratio * member.tell():
                        raise BadFile(where, f"compressed more than {limits.ratio}-fold: a bomb")
                    yield chunk
        except DAMAGE as error:
            raise _damaged(where, error) from None


def _open(path: Path) -> IO[bytes]:
    try:
        if (
            not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()
        ):  # a pipe would be waited for
            raise BadFile(path, "not a regular file")
        return path.open("rb")
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from None


def _damaged(where: object, error: Exception) -> BadFile:
    return BadFile(where, f"damaged or not a zip ({printable(str(error))})", fix="pack it again")


def _check_directory(path: Path, file: IO[bytes]) -> None:
    """Before `zipfile` reads the whole directory into memory: it must be tiny, plain and last."""
    size = file.seek(0, 2)
    if size > sum(LARGEST.values()):
        raise BadFile(path, f"{size} bytes; a submission has at most {sum(LARGEST.values())}")
    if size < 22:
        raise _damaged(path, zipfile.BadZipFile("too short"))
    file.seek(max(0, size - 42))
    tail = file.read()
    end = tail[-22:]
    if end[:4] != b"PK\x05\x06" or end[20:] != b"\0\0":
        raise _damaged(path, zipfile.BadZipFile("no plain end record"))
    if tail[:-22][-20:].startswith(b"PK\x06\x07"):
        raise BadFile(path, "a zip64 archive; submissions are smaller than that")
    count, directory = struct.unpack("<HI", end[10:16])
    if count > 2 + MOST_PROMPTS or directory > DIRECTORY:
        raise BadFile(path, f"{count} members in a directory of {directory} bytes; a submission "
                      f"has {', '.join(LARGEST)}")  # fmt: skip


def _check_member(path: Path, info: zipfile.ZipInfo) -> None:
    name = info.filename
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        raise BadFile(path, f"member {name!r} points out of the archive")
    if stat.S_ISLNK(info.external_attr >> 16):
        raise BadFile(path, f"member {name!r} is a symbolic link")
    most = LARGEST.get(PROMPTS if PROMPT_FILE.fullmatch(name) else name)
    if most is None:
        known = ", ".join([*LARGEST, "prompts.ROLE.toml"])
        raise BadFile(path, f"unknown member {name!r:.200}; known: {known}")
    if info.flag_bits & 1:
        raise BadFile(path, f"member {name!r} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadFile(path, f"member {name!r} is compressed in an unusual way")
    if info.file_size > most:
        raise BadFile(path, f"member {name!r} has {info.file_size} bytes; at most {most}")
    if info.file_size > 2**20 and info.file_size > DEFLATE_RATIO * info.compress_size:
        raise BadFile(path, f"member {name!r} is compressed more than {DEFLATE_RATIO}-fold: a bomb")


def _check_layout(path: Path, archive: zipfile.ZipFile) -> None:
    """The members lie one behind the other from the start on: none is in another, nothing before.

    Who reads the file from its start sees the same members then as who reads its directory.
    """
    end = 0
    for info in sorted(archive.infolist(), key=lambda one: one.header_offset):
        if info.header_offset < end or (end == 0 and info.header_offset > 0):
            raise BadFile(path, f"member {info.filename!r} does not lie behind the one before it")
        end = info.header_offset + HEADER + len(info.filename) + info.compress_size
    if end > archive.start_dir:
        raise BadFile(path, "its last member lies in the directory")


def _check_prompts(path: Path, members: list[zipfile.ZipInfo]) -> None:
    sizes = [info.file_size for info in members if info.filename not in (MANIFEST, EPISODES)]
    if sum(sizes) > LARGEST[PROMPTS]:
        raise BadFile(path, f"prompts of {sum(sizes)} bytes; at most {LARGEST[PROMPTS]}")
