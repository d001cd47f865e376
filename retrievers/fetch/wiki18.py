"""The field's corpora and indexes, from where the field keeps them: `mas-retrieve fetch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from retrievers.base import Progress, RetrieverError, silent

_NO_PINS: Mapping[str, str] = MappingProxyType({})


class Resource(NamedTuple):
    """Files of a data set on the Hugging Face hub, and what they are for.

    `revision` and `sha256` (by name of the file) pin them. Where they are None or missing, the
    newest revision is taken and checked against the digests the hub itself states. `join` is the
    one file that all of them make. `then` are the next commands, with {out} for the folder and
    `use` for what one gets by them; they also need the part `needs`.
    """

    about: str
    repo: str
    files: tuple[str, ...]
    use: str
    then: tuple[str, ...]
    needs: str | None = None
    join: str | None = None
    revision: str | None = None
    sha256: Mapping[str, str] = _NO_PINS
    by_default: bool = True


# Names as in Search-R1's own download script. Nothing is pinned until somebody has compared a
# revision and its digests with the hub.
RESOURCES: Mapping[str, Mapping[str, Resource]] = {
    "wiki-18": {
        "corpus": Resource(
            about="21 million passages of Wikipedia, 2018; about 5 GB",
            repo="PeterJinGo/wiki-18-corpus",
            files=("wiki-18.jsonl.gz",),
            use="BM25 with Pyserini's results, without Java",
            then=(
                "mas-retrieve index {out}/wiki-18.jsonl.gz {out}/index",
                "mas-retrieve serve {out}/index",
            ),
        ),
        "bm25": Resource(
            about="Lucene index of the corpus, for the extra pyserini; about 2 GB",
            repo="PeterJinGo/wiki-18-bm25-index",
            files=("bm25/*",),
            use="the field's own index by Lucene itself (extra pyserini, Java)",
            then=(
                "mas-retrieve index {out}/wiki-18.jsonl.gz {out}/lucene --backend lucene"
                " --option lucene_index={out}/bm25",
                "mas-retrieve serve {out}/lucene",
            ),
            needs="corpus",
        ),
        "e5": Resource(
            about="flat FAISS index of its e5-base-v2 vectors, for the extra dense; about 65 GB",
            repo="PeterJinGo/wiki-18-e5-index",
            files=("part_aa", "part_ab"),
            use="the field's own vectors, with e5-base-v2 for the queries (extra dense)",
            then=(
                "mas-retrieve index {out}/wiki-18.jsonl.gz {out}/dense --backend dense"
                " --option faiss_index={out}/e5_Flat.index",
                "mas-retrieve serve {out}/dense",
            ),
            needs="corpus",
            join="e5_Flat.index",
            by_default=False,
        ),
    }
}


def fetch(
    name: str,
    out: Path,
    *,
    what: Sequence[str] | None = None,
    endpoint: str | None = None,
    progress: Progress = silent,
) -> list[Path]:
    """The parts `what` of the resource `name`, checked, under `out`; their paths.

    By default all parts but those that are too large to come unasked (`e5`). One of `what` may be
    several with commas, as in the shell: "corpus,bm25". Nothing is fetched twice: an interrupted
    fetch continues. Raises RetrieverError for an unknown name, a refusal and a disk that is too
    small for all of it, and RetrieverDown for a hub that does not answer or sends damaged bytes.
    """
    from retrievers.fetch.download import get
    from retrievers.fetch.hub import plan

    targets = []
    for part in _chosen(name, what).values():
        targets += plan(part.repo, part.files, out, part.revision, part.sha256, part.join, endpoint)
    return get(targets, progress)


def _chosen(name: str, what: Sequence[str] | None) -> dict[str, Resource]:
    if name not in RESOURCES:
        raise RetrieverError(f"no resource {name!r}; there are: {', '.join(RESOURCES)}")
    parts = RESOURCES[name]
    asked = what or [key for key, part in parts.items() if part.by_default]
    chosen = [part.strip() for one in asked for part in one.split(",")]
    for part in chosen:
        if part not in parts:
            raise RetrieverError(f"--what {part!r}: {name} has {', '.join(parts)}")
    return {part: parts[part] for part in chosen}


def next_steps(name: str, out: Path, what: Sequence[str] | None = None) -> list[str]:
    """Lines for a shell that use what `fetch` with the same arguments has put there.

    Each part has a comment and its commands, of which a missing part that it needs is the first.
    """
    from shlex import quote

    chosen, folder, lines = _chosen(name, what), quote(str(out)), []
    for part in chosen.values():
        lines.append(f"# {part.use}:")
        if part.needs and part.needs not in chosen:
            files = RESOURCES[name][part.needs].files
            if not all((out / file).exists() for file in files):
                lines.append(f"mas-retrieve fetch {name} --out {folder} --what {part.needs}")
        lines += [command.replace("{out}", folder) for command in part.then]
    return lines


def describe() -> list[str]:
    """Lines for `mas-retrieve fetch --list`: each part, what it is, whence, and whether pinned."""
    lines = []
    for name, parts in RESOURCES.items():
        lines.append(name)
        for key, part in parts.items():
            files = ", ".join(part.files) + (f" -> {part.join}" if part.join else "")
            pinned = f"revision {part.revision or 'unpinned'}"
            digests = "SHA-256 " + (
                "pinned" if part.sha256 else "unpinned: the hub's own is checked"
            )
            unasked = "" if part.by_default else f"; only with --what {key}"
            lines.append(f"  {key:8}{part.about}{unasked}")
            lines.append(f"  {'':8}{part.repo}: {files}; {pinned}; {digests}")
    return lines
