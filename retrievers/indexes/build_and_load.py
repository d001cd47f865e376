"""Make an index on disk, and open what can be searched.

A folder with `manifest.json`, `passages/` (the texts) and one folder of the backend's own. Stage 1
reads the corpus once and writes the texts; stage 2 is the backend's `write_index` over them.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from retrievers.base import Passage, Progress, Retriever, RetrieverError, silent
from retrievers.corpora.files import load_corpus, naming_repeats
from retrievers.indexes.backends import BACKENDS, check_build, get_backend
from retrievers.indexes.manifest import (
    NAME,
    Manifest,
    check_sizes,
    listed_files,
    read_manifest,
    write_manifest,
)
from retrievers.indexes.options import (
    accepted,
    as_json,
    call_with_options,
    callables,
    check_options,
)
from retrievers.indexes.own import is_own, open_own
from retrievers.indexes.workspace import NOT_INDEX, open_workspace

__all__ = ["BACKENDS", "build", "check_options", "is_index", "load", "open_or_index"]

_HOST_PORT = re.compile(r"[\w.-]+:\d{1,5}(/|,|$)")
RESUMED = "going on, texts are there already: (passages)"


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
    from retrievers.indexes.texts import build_key, write_texts  # numpy

    module = get_backend(backend)
    named, functions = as_json(options), callables(options)
    report = silent if progress is None else progress
    check_build(f"the backend {backend}", module, options, report)
    place = Path(out).resolve()
    try:
        with open_workspace(place, overwrite) as workspace:
            key = None if functions else build_key(corpus, duplicates, backend, named)
            passages, facts, resumed = write_texts(workspace, corpus, duplicates, key, report)
            if resumed:
                report(RESUMED, len(passages), None)
            workspace.keep_if_stopped = key is not None
            workspace.keep_if_failed = key is not None and module.RESUMES
            folder = workspace.folder / backend
            if not (resumed and module.RESUMES):
                _empty(folder)
            settings = module.write_index(passages, folder, progress=report, **options)
            del passages  # its files are about to move
            files = listed_files(workspace.folder, NOT_INDEX, report)
            made = Manifest(backend, named, settings, facts, duplicates, files)
            write_manifest(workspace.folder, made)
            workspace.publish()
    except OSError as error:
        if (why := _disk_full(error)) is None:
            raise
        raise RetrieverError(f"{out}: cannot write the index: {why}") from None
    return load(out, **accepted(module.open_index, functions))


def load(where: str | Path, **options: Any) -> Retriever:
    """Open the folder of an index, a Lucene index of Anserini or Pyserini, or a server's URL.

    Several URLs of the same index are separated by commas. "module:attribute" is a retriever of
    your own, or a class or function that makes one. `options` are those of searching with the
    backend (of `HTTPRetriever`, of what makes your own). Raises RetrieverError when nothing of that
    kind is there, and for an index that is damaged or of another version.
    """
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        from retrievers.http.retriever import HTTPRetriever

        urls = re.split(r"\s*,\s*(?=https?://)", where)
        given = urls if len(urls) > 1 else urls[0]
        return call_with_options("a server", HTTPRetriever, given, **options)
    folder = Path(where)
    if (folder / NAME).is_file():
        return _open(folder, options)
    if is_lucene(folder) and _whole_of(folder) is None:
        from retrievers.lucene import open_anserini

        return call_with_options("a search with lucene", open_anserini, folder, **options)
    if is_own(where):
        return open_own(str(where), **options)
    raise RetrieverError(f"{where}: {why_no_index(where)}")


def is_index(where: str | Path) -> bool:
    """Whether `where` looks like what `load` opens, and not like a corpus."""
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        return True
    folder = Path(where)
    return (folder / NAME).is_file() or is_lucene(folder) or is_own(where)


def open_or_index(where: str | Path, *, progress: Progress = silent, **options: Any) -> Retriever:
    """What `load` opens, or else a corpus, which is indexed for this process with BM25."""
    if is_index(where) or not Path(where).exists() or _whole_of(Path(where)):
        return load(where, **options)
    from retrievers.bm25 import BM25

    check_options("bm25", BM25.__init__, options)
    with naming_repeats(where):
        return BM25(load_corpus(where, progress=progress), **options)


def _disk_full(error: OSError) -> str | None:
    """In words, if `error` says that no more can be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return error.strerror
    if error.errno is None and re.search(r"\d+ requested and \d+ written", str(error)):
        return f"the disk is full ({error})"  # numpy's tofile tells no more
    return None


def _open(folder: Path, options: dict[str, Any]) -> Retriever:
    """The index in `folder`; once more if another took its place while its files were opened."""
    while True:
        made = read_manifest(folder)
        try:
            opened = _opened(folder, made, options)
        except RetrieverError:
            if read_manifest(folder) == made:
                raise
        else:
            if read_manifest(folder) == made:
                return opened


def _opened(folder: Path, made: Manifest, options: dict[str, Any]) -> Retriever:
    check_sizes(folder, made)
    from retrievers.passages.store import open_passages

    try:
        return call_with_options(
            f"a search with {made.backend}",
            get_backend(made.backend).open_index,
            open_passages(folder / "passages"),
            folder / made.backend,
            made.settings,
            **options,
        )
    except RetrieverError as error:
        raise RetrieverError(f"{folder}: {error}") from None


def is_lucene(folder: Path) -> bool:
    """Whether `folder` holds files of Lucene."""
    return folder.is_dir() and any(folder.glob("segments_*"))


def _whole_of(path: Path) -> Path | None:
    """The index that `path` is a part of, if it is."""
    if path.name not in (NAME, "passages", *BACKENDS):
        return None
    return next((folder for folder in path.parents[:2] if (folder / NAME).is_file()), None)


def why_no_index(where: str | Path) -> str:
    """What `where` is, if it is nothing that can be opened, and what to do."""
    path = Path(where)
    if whole := _whole_of(path):
        return f"a part of the index {whole}; give that folder"
    if not path.exists() and _HOST_PORT.match(str(where)):
        return f"no such file; did you mean http://{where}?"
    if Path(f"{path.resolve()}.partial").is_dir():
        return "no index yet; its build is running or was stopped: run the same build again"
    if not path.exists():
        return "no index there; make one with `mas-retrieve index CORPUS OUT` or retrievers.build"
    what = "a folder without an index" if path.is_dir() else "a file"
    return f"{what}; make an index of a corpus with `mas-retrieve index` or retrievers.build"


def _empty(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
