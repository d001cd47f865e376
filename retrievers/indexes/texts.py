"""The first stage of a build: a corpus is read once, its texts are written, its digest is taken."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from retrievers.base import Passage, Progress, RetrieverError, silent, well_formed
from retrievers.corpora.files import corpus_files, load_corpus, naming_repeats
from retrievers.indexes.manifest import FORMAT, mas_gym_version, sync_files
from retrievers.indexes.workspace import Workspace
from retrievers.passages.store import Passages, open_passages, write_passages


def build_key(
    corpus: Any, duplicates: str, backend: str, options: dict[str, Any]
) -> dict[str, Any] | None:
    """What makes two builds the same; None where that cannot be told (a generator, a pipe)."""
    if not _is_path(corpus):
        return None
    files = [path.resolve() for path in corpus_files(corpus)]
    if not all(path.is_file() for path in files):
        return None
    stats = [path.stat() for path in files]
    return {
        "files": [
            [str(path), stat.st_size, stat.st_mtime_ns]
            for path, stat in zip(files, stats, strict=True)
        ],
        "duplicates": duplicates,
        "backend": backend,
        "options": options,
        "versions": [FORMAT, mas_gym_version()],
    }


def write_texts(
    workspace: Workspace,
    corpus: Any,
    duplicates: Literal["refuse", "keep_last"],
    key: dict[str, Any] | None,
    progress: Progress,
) -> tuple[Passages, dict[str, Any], bool]:
    """(passages in the workspace, what the manifest says of their corpus, were they there).

    They were there if a build of the same `key` (see `build_key`) was stopped after this stage.
    """
    folder = workspace.folder / "passages"
    state = workspace.read_state()
    if key is not None and state.get("key") == key:
        with contextlib.suppress(RetrieverError):
            return open_passages(folder), state["corpus"], True
    workspace.clear()
    stream = _Stream(corpus, progress)
    with naming_repeats(corpus) if _is_path(corpus) else contextlib.nullcontext():
        passages = write_passages(stream, folder, duplicates=duplicates, progress=stream.report)
    facts = {
        "sources": [path.name for path in corpus_files(corpus)] if _is_path(corpus) else None,
        "passages": len(passages),
        "sha256": stream.digest.hexdigest(),
    }
    sync_files(folder)  # or else the state could outlive them
    workspace.write_state({"key": key, "corpus": facts})
    return passages, facts, False


def digest_of(passages: Iterable[Passage]) -> str:
    """The manifest's "sha256" of a corpus (see `_Stream`)."""
    stream = _Stream(passages, silent)
    for _ in stream:
        pass
    return stream.digest.hexdigest()


class _Stream:
    """The passages of a corpus in passing, for a digest that is the same in any file format.

    SHA-256 over id, title and text of each passage, as UTF-8 after its length (8 bytes, low first).
    """

    def __init__(self, corpus: Any, progress: Progress) -> None:
        self._files = _is_path(corpus)
        rows = load_corpus(corpus, progress=progress) if self._files else iter(corpus)
        self._rows, self._progress = rows, progress
        self.digest = hashlib.sha256()

    def __iter__(self) -> Iterator[Passage]:
        for place, row in enumerate(self._rows):
            try:
                id_, title, text = map(_utf8, row[:3])
            except (TypeError, ValueError, AttributeError):
                raise RetrieverError(
                    f"passages[{place}]: id, title and text must be strings: {row!r:.200}"
                ) from None
            for field in (id_, title, text):
                self.digest.update(len(field).to_bytes(8, "little") + field)
            yield row

    def report(self, stage: str, done: int, total: int | None) -> None:
        """Progress of who takes the passages; of files, the bytes that were read tell more."""
        if total is not None or not self._files:
            self._progress(stage, done, total)


def _utf8(field: str) -> bytes:
    try:
        return field.encode()
    except UnicodeEncodeError:
        return well_formed(field).encode()


def _is_path(corpus: Any) -> bool:
    if isinstance(corpus, str | Path):
        return True
    listed = isinstance(corpus, Sequence) and len(corpus) > 0
    return listed and all(isinstance(one, str | Path) for one in corpus)
