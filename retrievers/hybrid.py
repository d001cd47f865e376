"""Several retrievers as one, by reciprocal rank fusion."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrievers.base import Passage, Progress, Retriever, RetrieverError, check_request, silent
from retrievers.indexes.backends import BACKENDS, check_build, get_backend
from retrievers.indexes.options import accepted, check_options, checked_count, nearest

if TYPE_CHECKING:
    from retrievers.passages.store import Passages

FORMAT = 1
RESUMES = True
DEPTH = 100  # passages asked of each part, unless a search wants more
CONSTANT = 60
_PARTS = sorted(set(BACKENDS) - {"hybrid"})


class Hybrid:
    """Ranks by Σ 1 / (60 + place in the list of each part), over the parts that found the passage.

    Cormack, Clarke & Büttcher 2009, with their constant. `depth`: passages asked of each part, or
    k if that is more. A passage found by several is the first part's. Fused scores lie within
    1/61 of each other, so, unlike everywhere else, they are not rounded to 4 decimals, neither
    for the order nor in `Passage.score`; equal ones go by id. Raises what a part raises.

    Hybrid([bm25, dense]).search(["who wrote Hamlet"], k=3)
    """

    def __init__(self, parts: Sequence[Retriever], *, depth: int = DEPTH) -> None:
        if not parts:
            raise RetrieverError("parts must hold at least one retriever")
        self.parts, self.depth = list(parts), checked_count("depth", depth)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The at most k best passages for each query (see `Retriever`)."""
        check_request(queries, k)
        if k == 0:
            return [[] for _ in queries]
        asked = max(self.depth, k)
        found = [part.search(queries, asked) for part in self.parts]
        return [fuse(lists, k) for lists in zip(*found, strict=True)]

    def __repr__(self) -> str:
        return f"Hybrid({self.parts!r})"

    async def asearch(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """`search` with all parts at once, without blocking the event loop."""
        check_request(queries, k)
        if k == 0:
            return [[] for _ in queries]
        asked = max(self.depth, k)
        found = await asyncio.gather(*(part.asearch(queries, asked) for part in self.parts))
        return [fuse(lists, k) for lists in zip(*found, strict=True)]


def fuse(lists: Sequence[Sequence[Passage]], k: int) -> list[Passage]:
    """The at most k best of ranked lists by reciprocal rank fusion, with fused scores."""
    passages: dict[str, Passage] = {}
    terms: dict[str, list[float]] = {}
    for ranked in lists:
        for place, passage in enumerate(ranked, 1):
            passages.setdefault(passage.id, passage)
            terms.setdefault(passage.id, []).append(1 / (CONSTANT + place))
    # fsum rounds once, so that the same places in other parts tie exactly.
    scores = {id_: math.fsum(parts) for id_, parts in terms.items()}
    best = sorted(scores, key=lambda id_: (-scores[id_], id_))[:k]
    return [passages[id_]._replace(score=scores[id_]) for id_ in best]


def check_first(
    *, progress: Progress = silent, depth: int = DEPTH, **parts: dict[str, Any] | None
) -> None:
    """Raise RetrieverError for what `write_index` or one of its parts would refuse anyway."""
    checked_count("depth", depth)
    for name, options in _chosen({"bm25": {}, "dense": {}, **parts}).items():
        check_build(f"the part {name}", get_backend(name), options, progress)


def write_index(
    passages: Passages,
    folder: Path,
    *,
    progress: Progress = silent,
    depth: int = DEPTH,
    **parts: dict[str, Any] | None,
) -> dict[str, Any]:
    """Build an index per part, each in its folder of `folder`; returns the manifest's settings.

    `parts`: name of a backend to its options. bm25 and dense are there unless they are None:
    `write_index(passages, folder, dense={"encoder": "intfloat/e5-base-v2"}, bm25={"k1": 1.2})`.
    A part that an interrupted build finished is kept.
    """
    checked_count("depth", depth)
    options = _chosen({"bm25": {}, "dense": {}, **parts})
    for name, chosen in options.items():  # all of them before the first hour of work
        check_options(f"the part {name}", get_backend(name).check_first, chosen)
    settings = {}
    for name, chosen in options.items():
        done = folder / f"{name}.json"
        if not done.exists():
            part, place = get_backend(name), folder / name
            if place.exists() and not part.RESUMES:
                shutil.rmtree(place)
            place.mkdir(parents=True, exist_ok=True)
            made = part.write_index(passages, place, progress=progress, **chosen)
            done.write_text(json.dumps(made))
        settings[name] = json.loads(done.read_bytes())
    return {"format": FORMAT, "depth": depth, "parts": settings}


def open_index(
    passages: Passages,
    folder: Path,
    settings: dict[str, Any],
    *,
    depth: int | None = None,
    **parts: dict[str, Any] | None,
) -> Hybrid:
    """The retriever over an index; `parts`: name of a part to its options of searching."""
    if settings.get("format") != FORMAT:
        raise RetrieverError(
            f"hybrid format {settings.get('format')!r}, this version reads {FORMAT}; build the "
            "index again"
        )
    options = _chosen(parts)
    for name, chosen in options.items():
        if name not in settings["parts"]:
            raise RetrieverError(f"{name}: no part of this index ({', '.join(settings['parts'])})")
        check_options(f"a search with {name}", get_backend(name).open_index, chosen)
    opened = [
        get_backend(name).open_index(passages, folder / name, made, **options.get(name, {}))
        for name, made in settings["parts"].items()
    ]
    return Hybrid(opened, depth=settings["depth"] if depth is None else depth)


def _chosen(parts: dict[str, dict[str, Any] | None]) -> dict[str, dict[str, Any]]:
    for name, options in parts.items():
        if name not in _PARTS:
            raise RetrieverError(f"unknown option {name!r} for hybrid; {_its_place(name, options)}")
        if options is not None and not isinstance(options, dict):
            raise RetrieverError(
                f"{name} must be a dict of its options, as {_written('dense', 'encoder', '…')}, "
                f"got {options!r:.80}"
            )
    chosen = {name: options for name, options in parts.items() if options is not None}
    if parts and not chosen:
        raise RetrieverError(f"no part is left of {', '.join(parts)}; one must not be None")
    return chosen


def _its_place(name: str, value: Any) -> str:
    for part in _PARTS:
        functions = get_backend(part).check_first, get_backend(part).open_index
        if any(accepted(function, {name: value}) for function in functions):
            return f"it is one of {part}: {_written(part, name, value)}"
    return nearest(name, ["depth", *_PARTS])


def _written(part: str, name: str, value: Any) -> str:
    options = {name: value if isinstance(value, str | int | float) else "…"}
    return f"{part}={json.dumps(options, ensure_ascii=False)}"
