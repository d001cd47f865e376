"""Taking over a Lucene index that Anserini or Pyserini made, such as the field's for wiki-18.

That one stores ids alone: the texts come from the corpus, by id.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrievers.base import RetrieverError
from retrievers.indexes.workspace import link_file
from retrievers.lucene.process import Worker

if TYPE_CHECKING:
    from retrievers.passages.store import Passages

IDS = 1000  # documents whose ids are looked up in the corpus
TEXTS = 16  # of them, those that are searched for by the corpus's text
WORDS = 64  # of that text; whole texts of 21 million passages would take seconds each
BEST = 3  # among which a passage must be found
TIMEOUT_S = 600.0  # of one command; the files may lie on a slow disk


def check_lucene_folder(folder: Path) -> None:
    """Raise RetrieverError unless the folder looks like a Lucene index; starts no Java."""
    if not folder.is_dir():
        raise RetrieverError(f"{folder}: no such folder")
    if not any(folder.glob("segments_*")):
        raise RetrieverError(f"{folder}: not a Lucene index (no segments_N file in it)")


def summary(folder: Path) -> dict[str, Any]:
    """What an index of Anserini's holds: documents, and the fields stored of the first."""
    check_lucene_folder(folder)
    worker = Worker(heap="1g", threads=1)
    try:
        documents, first = worker.ask("open", str(folder.resolve()), 0.9, 0.4, timeout=TIMEOUT_S)
    finally:
        worker.close()
    stored = sorted(first or ())
    texts = not {"raw", "contents"}.isdisjoint(stored)
    return {"lucene": worker.version, "documents": documents, "stored": stored, "texts": texts}


def take_over(
    worker: Worker, source: Path, folder: Path, passages: Passages, similarity: tuple[float, float]
) -> None:
    """Link the index `source` into the empty `folder` and check that it is one of the passages.

    `similarity`: k1 and b. Raises RetrieverError when it is not, or cannot be read.
    """
    try:
        check_lucene_folder(source)
        _link(source, folder)
        opened = worker.ask("open", str(folder.resolve()), *similarity, timeout=TIMEOUT_S)
        _check(worker, passages, *opened)
    except RetrieverError as error:
        raise RetrieverError(f"lucene_index={str(source)!r}: {error}") from None


def _link(source: Path, folder: Path) -> None:
    """File by file; Lucene never changes what it wrote."""
    for path in sorted(source.resolve().iterdir()):
        if not path.is_file() or path.name == "write.lock":
            continue
        link_file(path, folder / path.name)


def _check(
    worker: Worker, passages: Passages, documents: int, first: dict[str, str] | None
) -> None:
    """Compare the numbers, look up the ids of some documents, and search for texts of theirs."""
    if documents != len(passages):
        raise RetrieverError(
            f"{documents:,} documents but {len(passages):,} passages; give the corpus that was "
            "indexed, all of it"
        )
    if first is not None and "id" not in first:
        raise RetrieverError("no document has a stored field id, so Anserini did not write it")
    sample = range(0, documents, -(-documents // IDS) or 1)
    ids = worker.ask("ids", list(sample), timeout=TIMEOUT_S)
    places = {id_: passages.place_of(id_) for id_ in ids}
    if missing := [id_ for id_, place in places.items() if place is None]:
        raise RetrieverError(
            f"document {missing[0]!r:.80} is not in the corpus; give the corpus that was indexed"
        )
    few = list(places.values())[:: -(-len(places) // TEXTS) or 1]
    texts = [_begin(passages, place) for place in few]
    terms = worker.ask("analyze", texts, timeout=TIMEOUT_S)
    found = []
    for text, words in zip(texts, terms, strict=True):
        if words:  # nothing finds an empty passage
            [hits] = worker.ask("search", [text], BEST, 1, timeout=TIMEOUT_S)
            found.append(text in [_begin(passages, passages.place_of(hit[0])) for hit in hits])
    # Not all of them: a short passage may be beaten by one that repeats its words.
    if 2 * sum(found) < len(found):
        raise RetrieverError(
            f"of {len(found)} passages it finds {sum(found)} by their own texts; give the corpus "
            "that was indexed"
        )


def _begin(passages: Passages, place: int | None) -> str:
    return "" if place is None else " ".join(passages.contents(place).split()[:WORDS])
