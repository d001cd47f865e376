"""Reading passages from files: which files, and what their rows mean."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from retrievers.base import Passage, Progress, RetrieverError, silent, well_formed

Where = str | Path | Sequence[str | Path]
STAGE = "reading (bytes)"
_SHARD = re.compile(r".+(\.jsonl|\.tsv|\.parquet)(\.gz|\.zst)?")
_NO_CORPUS = re.compile(r"(queries|qrels|topics)\b.*", re.IGNORECASE)
_WHOLE = re.compile(r"corpus(\.jsonl|\.tsv|\.parquet)(\.gz|\.zst)?")


def load_corpus(where: Where, *, progress: Progress = silent) -> Iterator[Passage]:
    """Stream the passages of a file, of several in turn, or of a folder, in constant memory.

    A file is JSONL (.jsonl, .json or any other name), TSV (.tsv) or Parquet (.parquet); the first
    two may be compressed with gzip or zstd and stand in a tar archive (as in wiki-18.jsonl.gz),
    which is seen from their first bytes. A row is {"id", "contents"} (Pyserini, wiki-18: a first
    line in double quotes is the title) or {"_id" or "id", "title", "text"} (BEIR; title may be
    missing or null); an id may be an integer. Blank lines are skipped. A folder is its
    `corpus.jsonl` (BEIR), or else its shards in the order of their names. `progress` is told the
    bytes read from disk. Raises RetrieverError naming file, member of an archive and line (or row
    of a Parquet file) for anything else, and for a file that cannot be read.
    """
    from retrievers.corpora.rows import rows_of  # json, zlib: only for who reads a corpus

    files = corpus_files(where)
    total, before = _bytes(files), 0
    for path in files:

        def told(position: int, before: int = before) -> None:
            progress(STAGE, before + position, total)

        for place, row in rows_of(path, told):
            try:
                yield passage_of(row)
            except BadRow as error:
                raise RetrieverError(f"{place}: {error}") from None
        before += path.stat().st_size
    progress(STAGE, before, total)


@contextlib.contextmanager
def naming_repeats(where: Where) -> Iterator[None]:
    """A `RepeatedId` of passages that come from `where` is one that names their places.

    They are found by reading once more, up to the second one.
    """
    from retrievers.corpora.rows import rows_of
    from retrievers.passages.id_order import RepeatedId

    try:
        yield
    except RepeatedId as error:
        files = corpus_files(where)
        if not all(path.is_file() for path in files):  # a pipe is read only once
            raise
        places = (place for path in files for place, _ in rows_of(path, lambda _: None))
        first, second = error.rows
        named = list(itertools.islice(places, first, second + 1))
        if len(named) != second - first + 1:  # changed meanwhile
            raise
        raise RepeatedId(error.id, error.rows, (named[0], named[-1])) from None


def corpus_files(where: Where) -> list[Path]:
    """The files that `load_corpus` reads for `where`. Raises RetrieverError when there are none."""
    if isinstance(where, str | Path):
        return _files_of(Path(where))
    files = [file for one in where for file in _files_of(Path(one))]
    if not files:
        raise RetrieverError("no corpus given; give a file, several, or a folder")
    return files


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            raise RetrieverError(f"{path}: cannot read the corpus: No such file or directory")
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file())
    for file in files:
        if _WHOLE.fullmatch(file.name):
            return [file]
    shards = [file for file in files if _SHARD.fullmatch(file.name)]
    if not shards:
        index = (path / "manifest.json").exists()
        hint = "it is an index, made already" if index else "give a .jsonl, .tsv or .parquet file"
        raise RetrieverError(f"{path}: a folder without corpus.jsonl or shards; {hint}")
    if wrong := [file.name for file in shards if _NO_CORPUS.fullmatch(file.name)]:
        raise RetrieverError(
            f"{path}: a folder without corpus.jsonl, and {wrong[0]} looks like no passages; add "
            "the corpus, or name the files to be read"
        )
    if len({match[1] for file in shards if (match := _SHARD.fullmatch(file.name))}) > 1:
        names = f"{shards[0].name}, {shards[-1].name}"
        raise RetrieverError(f"{path}: files of several formats ({names}); name those to be read")
    return shards


def _bytes(files: list[Path]) -> int | None:
    """The size of all files together; None where one is a pipe, whose size nobody knows."""
    if all(file.is_file() for file in files):
        return sum(file.stat().st_size for file in files)
    return None


class BadRow(Exception):
    """What is wrong with a row; its place is added by whoever knows it."""


def passage_of(row: Any) -> Passage:
    """The passage in a row of a corpus (see `load_corpus`). Raises BadRow."""
    if not isinstance(row, dict):
        raise BadRow(f"a row must be a JSON object, got {type(row).__name__}; one object a line")
    if "id" in row and "contents" in row:
        keys = "id", "title", "contents"
        id_, title, text = row["id"], "", row["contents"]
        if isinstance(text, str):
            title, text = split_title(text)
    elif ("_id" in row or "id" in row) and "text" in row:
        keys = "_id" if "_id" in row else "id", "title", "text"
        id_, text = row[keys[0]], row["text"]
        title = "" if row.get("title") is None else row["title"]
    else:
        has = ", ".join(f"{key!r:.40}" for key in list(row)[:12]) or "none"
        raise BadRow(f'needs "id" and "contents", or "_id", "title" and "text"; has {has}')
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    for key, value in zip(keys, (id_, title, text), strict=True):
        if not isinstance(value, str):
            raise BadRow(f"{key} must be a string, got {value!r:.80}")
    return Passage(well_formed(id_), well_formed(title), well_formed(text))


def split_title(contents: str) -> tuple[str, str]:
    """Title and text of wiki-18's `contents`, whose first line is the title in double quotes."""
    first, newline, rest = contents.partition("\n")
    if newline and len(first) > 2 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", contents
