"""Any number of conversations as a folder that works from file://, without a server.

    index.html              the page: results, filters, the reader; small whatever the run's size
    chunks/list_0001.js     rows of the list
    chunks/chunk_0001.js    conversations, loaded when one of them is opened or searched

A page opened from file:// may load scripts and nothing else, so a chunk is a script of one call
whose argument is gzipped JSON in base64: no character of it can be read as code or as HTML. The
page's policy trusts its own script by hash, and what that script loads.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from mas_envs.episodes.plain import clean
from mas_envs.episodes.schema import Episode
from mas_envs.episodes.viewer.conversations import (
    LONGEST_TEXT,
    brief,
    change,
    conversation,
    heading,
)
from mas_envs.episodes.viewer.html_page import Cell, data_block, fill_page
from mas_envs.errors import BadFile, UserError
from mas_envs.files import whole_file

CHUNK_BYTES = 2_000_000  # of JSON; opening a conversation unpacks its whole chunk
CONVERSATION_BYTES = 4_000_000
WAITING = 4  # chunks that may wait to be packed: this bounds the memory
LEVEL = 1  # of gzip: 6 takes three times as long to make chunks a sixth smaller
_OURS = re.compile(r"(list|chunk)_\d{4,}\.js")

Key = tuple[str, str, str, int, int]


class ViewerFolder:
    """Write a folder to read episodes in, as they stream by.

        with ViewerFolder(folder, ["grpo", "drmas"]) as viewer:
            viewer.add(episode, "grpo", suite="aime24")
            viewer.finish("Results")

    Memory: a row per episode (about 1 kB) and a few chunks. Episodes of several sections are paired
    by suite, task and sample, in the order in which questions first came. Files of an earlier such
    folder are replaced; `index.html` is there when all others are.
    """

    def __init__(self, folder: str | Path, sections: Sequence[str]) -> None:
        """Raises `UserError` for a name given twice, `BadFile` where no folder can be made."""
        if len(set(sections)) < len(sections):
            raise UserError(f"sections {list(sections)}: a name stands twice; give each its own")
        self.folder, self.sections = Path(folder), list(sections)
        self.total = dict.fromkeys(sections, 0)
        self._chunks = _make_empty(self.folder)
        self._rows: dict[Key, dict[str, Any]] = {}
        self._order: dict[tuple[str, str], int] = {}
        self._tries: Counter[tuple[int, str, str, str, int]] = Counter()
        self._gathered: list[bytes] = []
        self._bytes = self._count = 0
        self._packer = ThreadPoolExecutor(1)
        self._waiting: deque[Future[None]] = deque()

    def add(self, episode: Episode, section: str, suite: str | None = None) -> None:
        """Take in one episode of a section; `suite` is what its list can be filtered by."""
        packed = _packed(episode)
        if self._gathered and self._bytes + len(packed) > CHUNK_BYTES:
            self._close_chunk()
        place = self.sections.index(section)
        entry = brief(episode) | {"at": [self._count + 1, len(self._gathered)]}
        self._row(episode, place, suite)["episodes"][place] = entry
        self.total[section] += 1
        self._gathered.append(packed)
        self._bytes += len(packed)

    def finish(
        self,
        title: str,
        *,
        headline: Mapping[str, Mapping[str, Cell]] | None = None,
        notes: Sequence[str] = (),
        figures: Mapping[str, bytes] | None = None,
    ) -> Path:
        """Write the list and `index.html` (arguments as for `page`), and return its path.

        Raises `UserError` when no episode was added, and for a bad cell or figure.
        """
        total = sum(self.total.values())
        if not total:
            raise UserError(f"no episodes to show in sections {self.sections}; play some first")
        self._close_chunk()
        lists = self._write_list()
        names = [{"name": n, "shown": count, "total": count} for n, count in self.total.items()]
        listed = data_block({"sections": names, "lists": lists, "chunks": self._count})
        sample = f"All {total:,} conversations." if total > 1 else "One conversation."
        content = fill_page(
            title, listed, html.escape(sample), ["chunks.js"],
            headline=headline, notes=notes, figures=figures,
        )  # fmt: skip
        while self._waiting:
            self._waiting.popleft().result()
        index = self.folder / "index.html"
        with whole_file(index) as temporary:
            temporary.write_text(content, encoding="utf-8")
        return index

    def _row(self, episode: Episode, place: int, suite: str | None) -> dict[str, Any]:
        fork = episode.provenance.get("fork", "")
        named = (suite or "", episode.task, fork, episode.sample)
        self._order.setdefault(named[:2], len(self._order))
        again = self._tries[place, *named]  # a failed try, then a finished one
        self._tries[place, *named] += 1
        key = (*named, again)
        if (row := self._rows.get(key)) is None:
            row = self._rows[key] = {
                "id": _id(*key),
                **heading(episode),
                "suite": suite,
                "episodes": [None] * len(self.sections),
            }
        return row

    def _close_chunk(self) -> None:
        if not self._gathered:
            return
        self._count += 1
        self._pack(f"chunk_{self._count:04d}", self._gathered)
        self._gathered, self._bytes = [], 0

    def _pack(self, name: str, parts: list[bytes]) -> None:
        """In a thread, as gzip lets others run; never more than a few at once."""
        while len(self._waiting) >= WAITING:
            self._waiting.popleft().result()
        self._waiting.append(self._packer.submit(_write_chunk, self._chunks, name, parts))

    def _write_list(self) -> int:
        """The rows, in the order of the list, in chunks; returns how many."""
        number, size = 0, 0
        parts: list[bytes] = []
        for key in sorted(self._rows, key=lambda key: (self._order[key[:2]], *key[2:])):
            row = self._rows[key]
            outcomes = [one and one["outcome"] for one in row["episodes"]]
            parts.append(_json(row | {"change": change(outcomes)}))
            size += len(parts[-1])
            if size > CHUNK_BYTES:
                number += 1
                self._pack(f"list_{number:04d}", parts)
                parts, size = [], 0
        if parts:
            number += 1
            self._pack(f"list_{number:04d}", parts)
        return number

    def __enter__(self) -> ViewerFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._packer.shutdown(cancel_futures=True)


def _id(suite: str, task: str, fork: str, sample: int, again: int) -> str:
    return ".".join(filter(None, (suite, task, fork, str(sample), str(again or ""))))


def _make_empty(folder: Path) -> Path:
    """The folder of the chunks, without those of an earlier page. Raises `BadFile`."""
    chunks = folder / "chunks"
    try:
        chunks.mkdir(parents=True, exist_ok=True)
        (folder / "index.html").unlink(missing_ok=True)
        for path in chunks.iterdir():
            if _OURS.fullmatch(path.name):
                path.unlink()
    except OSError as error:
        raise BadFile(folder, f"cannot be written to: {error.strerror}") from None
    return chunks


def _packed(episode: Episode) -> bytes:
    """The conversation as JSON, its texts shortened if it is far too large to be read."""
    limit = LONGEST_TEXT
    while len(packed := _json(conversation(episode, limit))) > CONVERSATION_BYTES and limit > 100:
        limit //= 4
    return packed


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, of an episode that was never stored
        return clean(json.dumps(value, ensure_ascii=False)).encode()


def _write_chunk(folder: Path, name: str, parts: list[bytes]) -> None:
    # No time in it: the same episodes give the same bytes.
    packed = base64.b64encode(gzip.compress(b"[" + b",".join(parts) + b"]", LEVEL, mtime=0))
    with whole_file(folder / f"{name}.js") as temporary:
        temporary.write_bytes(b'chunk("%s","%s");\n' % (name.encode(), packed))
