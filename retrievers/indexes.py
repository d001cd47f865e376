"""Make an index on disk, and open what can be searched.

A folder with `manifest.json`, `passages/` (the texts) and one folder of the backend's own. Stage 1
reads the corpus once and writes the texts; stage 2 is the backend's `write_index` over them.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from retrievers.base import Passage, Progress, Retriever, RetrieverError, silent
from retrievers.corpus import load_corpus
from retrievers.manifest import (
    NAME,
    Manifest,
    check_sizes,
    listed_files,
    read_manifest,
    write_manifest,
)
from retrievers.options import called, check_options, functions_in, nearest, noted, taken_by
from retrievers.workspace import NOT_INDEX, open_workspace

__all__ = ["BACKENDS", "build", "check_options", "is_index", "load", "open_or_index"]

BACKENDS = {
    "bm25": "retrievers.bm25",
    "dense": "retrievers.dense",
    "hybrid": "retrievers.hybrid",
    "lucene": "retrievers.lucene",
}
"""Each is a module with `write_index` and `open_index`. One that goes on from the files which an
interrupted build of the same index left in its folder says so by `RESUMES = True`; others find
their folder empty."""


def build(
    corpus: str | Path | Sequence[str | Path] | Iterable[Passage],
    out: str | Path,
    backend: str = "bm25",
    *,
    duplicates: Literal["refuse", "keep_last"] = "refuse",
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Retriever:
    """Index `corpus` in the new folder `out`, and open it.

    `corpus`: what `load_corpus` reads, or passages. `duplicates`: what a repeated id does.
    `overwrite` replaces an index that is at `out`, once the new one is complete. `options` go to
    the backend. The work is done in `OUT.partial`: what is stopped or killed leaves no index, and
    the same build of the same files goes on from there as far as it can; any other build removes
    it. Raises RetrieverError for mistakes, a full disk and a folder that is used otherwise.
    """
    from retrievers.intake import job_of, take_in  # numpy

    module = _backend(backend)
    check_options(f"the backend {backend}", module.write_index, options)
    named, functions = noted(options), functions_in(options)
    told = silent if progress is None else progress
    place = Path(out).resolve()
    try:
        with open_workspace(place, overwrite) as space:
            job = None if functions else job_of(corpus, duplicates, backend, named)
            passages, facts, resumed = take_in(space, corpus, duplicates, job, told)
            space.keep_if_stopped = job is not None
            space.keep_if_failed = job is not None and _resumes(module)
            folder = space.folder / backend
            if not (resumed and _resumes(module)):
                _empty(folder)
            settings = module.write_index(passages, folder, progress=told, **options)
            del passages  # its files are about to move
            files = listed_files(space.folder, NOT_INDEX, told)
            made = Manifest(backend, named, settings, facts, duplicates, files)
            write_manifest(space.folder, made)
            space.publish()
    except OSError as error:
        if (why := _disk_full(error)) is None:
            raise
        raise RetrieverError(f"{out}: cannot write the index: {why}") from None
    return load(out, **taken_by(module.open_index, functions))


def load(where: str | Path, **options: Any) -> Retriever:
    """Open the folder of an index, a Lucene index of Anserini or Pyserini, or a server's URL.

    Several URLs of the same index are separated by commas. `options` are those of searching with
    the backend (or of `HTTPRetriever`). Raises RetrieverError when nothing of that kind is there,
    and for an index that is damaged or of another version.
    """
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        from retrievers.http import HTTPRetriever

        urls = re.split(r"\s*,\s*(?=https?://)", where)
        return called("a server", HTTPRetriever, urls if len(urls) > 1 else urls[0], **options)
    folder = Path(where)
    if (folder / NAME).is_file():
        return _open(folder, options)
    if (folder.parent / NAME).is_file() and folder.is_dir():
        raise RetrieverError(f"{where}: a part of the index {folder.parent}; give that folder")
    if _is_lucene(folder):
        from retrievers.lucene import open_anserini

        return called("a search with lucene", open_anserini, folder, **options)
    raise RetrieverError(f"{where}: {_why_no_index(folder)}")


def is_index(where: str | Path) -> bool:
    """Whether `where` looks like what `load` opens, and not like a corpus."""
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        return True
    return (Path(where) / NAME).is_file() or _is_lucene(Path(where))


def open_or_index(where: str | Path, *, progress: Progress = silent, **options: Any) -> Retriever:
    """What `load` opens, or else a corpus, which is indexed for this process with BM25."""
    if is_index(where) or not Path(where).exists():
        return load(where, **options)
    from retrievers.bm25 import BM25

    check_options("bm25", BM25.__init__, options)
    return BM25(load_corpus(where, progress=progress), **options)


def _disk_full(error: OSError) -> str | None:
    """In words, if `error` says that no more can be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return error.strerror
    if error.errno is None and re.search(r"\d+ requested and \d+ written", str(error)):
        return f"the disk is full ({error})"  # numpy's tofile tells no more
    return None


def _open(folder: Path, options: dict[str, Any]) -> Retriever:
    made = read_manifest(folder)
    check_sizes(folder, made)
    from retrievers.passages import open_passages

    try:
        return called(
            f"a search with {made.backend}",
            _backend(made.backend).open_index,
            open_passages(folder / "passages"),
            folder / made.backend,
            made.settings,
            **options,
        )
    except RetrieverError as error:
        raise RetrieverError(f"{folder}: {error}") from None


def _is_lucene(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("segments_*"))


def _why_no_index(path: Path) -> str:
    if Path(f"{path.resolve()}.partial").is_dir():
        return "no index yet; its build is running or was stopped: run the same build again"
    if not path.exists():
        return "no index there; make one with `mas-retrieve index CORPUS OUT`"
    what = "a folder without an index" if path.is_dir() else "a file"
    return f"{what}; make an index of a corpus with `mas-retrieve index CORPUS OUT`"


def _empty(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()


def _resumes(module: ModuleType) -> bool:
    return bool(getattr(module, "RESUMES", False))


def _backend(name: str) -> Any:
    if name not in BACKENDS:
        raise RetrieverError(f"unknown backend {name!r:.80}; {nearest(str(name), BACKENDS)}")
    return import_module(BACKENDS[name])
