"""The rows of one corpus file: JSONL, TSV or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retrievers.base import RetrieverError
from retrievers.corpora.bytes import Told, Unreadable, lines_in, texts_in

ROWS = 1024  # of a Parquet file at once
COLUMNS = ("_id", "id", "title", "text", "contents")
# As the first field of a TSV they are taken for a name that we do not know, not for an id.
_ID_NAMES = ("id", "_id", "pid", "docid", "doc_id", "doc-id", "passage_id", "passage-id", "psg_id",
             "corpus-id", "corpus_id", "qid", "query-id", "query_id", "docno")  # fmt: skip
_PARQUET = b"PAR1"


def rows_of(path: Path, told: Told) -> Iterator[tuple[str, Any]]:
    """(place, row) of each row; a place is file:line, file:member:line in an archive, or, of a
    Parquet file, file:row.

    A row of JSONL is whatever stands on its line; one of TSV or Parquet is a dict. Raises
    RetrieverError naming the place.
    """
    try:
        with open(path, "rb") as file:
            if file.peek(4)[:4] == _PARQUET or path.suffix == ".parquet":
                yield from _parquet(path, told)
                return
            for name, content in texts_in(file, told):
                where = f"{path}:{name}" if name else str(path)
                plain = (name or path.name).removesuffix(".gz").removesuffix(".zst")
                lines = _lines(where, content)
                yield from _tsv(lines) if plain.endswith(".tsv") else _jsonl(lines, plain)
    except Unreadable as error:
        raise RetrieverError(f"{path}: {error}") from None
    except OSError as error:
        why = error.strerror or error
        raise RetrieverError(f"{path}: cannot read the corpus: {why}") from None


def _jsonl(lines: Iterator[tuple[str, str]], name: str) -> Iterator[tuple[str, Any]]:
    for place, line in lines:
        try:
            yield place, json.loads(line)
        except (ValueError, RecursionError) as error:
            csv = name.lower().endswith(".csv")
            fix = "save the CSV as .tsv or JSONL" if csv else "write one object a line"
            raise RetrieverError(f"{place}: not JSON: {error}; {fix}") from None


def _tsv(lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, dict[str, str]]]:
    """If the first line names the columns, fields may be quoted as csv writers do it (DPR);
    if not, they are id, text and perhaps title, and a quote is a quote (MS MARCO)."""
    columns, fewest, read, first = ["id", "text", "title"], 2, _literal, True
    for place, line in lines:
        fields = line.removesuffix("\r").split("\t")
        names = [_unquoted(field) for field in fields] if first else []
        first = False
        if _names_columns(names):
            columns, fewest, read = names, len(names), _unquoted
            continue
        if names and names[0].strip().lower() in _ID_NAMES:
            raise RetrieverError(
                f"{place}: {', '.join(names)[:80]!r} looks like names of columns; they must be id, "
                "text and perhaps title (in any order)"
            )
        if not fewest <= len(fields) <= len(columns):
            wanted = "<TAB>".join(columns if fewest > 2 else ["id", "text[<TAB>title]"])
            raise RetrieverError(
                f"{place}: {len(fields)} fields where {wanted} should be; "
                "a text must hold no tab and no line end"
            )
        yield place, dict(zip(columns, map(read, fields), strict=False))


def _names_columns(names: list[str]) -> bool:
    return not {"id", "_id"}.isdisjoint(names) and not {"text", "contents"}.isdisjoint(names)


def _literal(field: str) -> str:
    return field


def _unquoted(field: str) -> str:
    """A field without the quotes around it and the doubling of those in it.

    What is not quoted as a whole stays as it is.
    """
    if len(field) > 1 and field[0] == field[-1] == '"':
        within = field[1:-1].replace('""', "")
        if '"' not in within:
            return field[1:-1].replace('""', '"')
    return field


def _parquet(path: Path, told: Told) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        fix = "pip install 'mas-gym[parquet]'"
        raise RetrieverError(f"{path}: reading Parquet needs pyarrow; {fix}") from None
    size, number = path.stat().st_size, 0
    try:
        with ParquetFile(path) as table:
            names = table.schema_arrow.names
            if not _names_columns(names):
                needs = 'needs the columns "id" and "contents", or "_id", "title" and "text"'
                raise RetrieverError(f"{path}: {needs}; has {', '.join(names)[:200] or 'none'}")
            wanted = [name for name in COLUMNS if name in names]
            for batch in table.iter_batches(ROWS, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}:{number}", row
                told(size * number // max(table.metadata.num_rows, 1))
    except RetrieverError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise RetrieverError(f"{path}:{number + 1}: not readable as Parquet: {why}") from None


def _lines(where: str, content: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    """(place, line without its end) of each line that is not blank."""
    number = 0
    try:
        for number, line in enumerate(lines_in(content), 1):
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            if text and not text.isspace():
                yield f"{where}:{number}", text
    except UnicodeDecodeError as error:
        raise RetrieverError(f"{where}:{number}: not UTF-8 at byte {error.start}") from None
    except Unreadable as error:
        raise RetrieverError(f"{where}:{number + 1}: {error}") from None
