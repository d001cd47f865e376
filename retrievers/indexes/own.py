"""A retriever of the user's own, named "package.module:attribute"."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retrievers.base import Passage, Retriever, RetrieverError, in_thread
from retrievers.indexes.options import call_with_options

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_own(where: str | Path) -> bool:
    """Whether `where` is "module:attribute", and no file of that name."""
    return isinstance(where, str) and bool(_NAME.fullmatch(where)) and not Path(where).exists()


def open_own(name: str, **options: Any) -> Own:
    """The retriever "module:attribute", or what that class or function makes of `options`.

    Modules of the current folder are found, too. Raises RetrieverError when there is none.
    """
    module, _, attribute = name.partition(":")
    if (here := os.getcwd()) not in sys.path:  # a console script does not look there
        sys.path.append(here)
    try:
        made: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        where = "modules are looked for in the current folder and in PYTHONPATH"
        raise RetrieverError(f"{name!r} cannot be imported: {error}; {where}") from None
    if callable(made) and (isinstance(made, type) or not hasattr(made, "search")):
        made = call_with_options(name, made, **options)
    elif options:
        raise RetrieverError(f"{name!r} is a retriever already; it takes no options")
    if not callable(getattr(made, "search", None)):
        raise RetrieverError(f"{name!r} is {made!r:.80}; it has no search(queries, k)")
    return Own(name, made)


class Own:
    """A user's retriever, whose answers are checked where they come from: RetrieverError."""

    def __init__(self, name: str, retriever: Retriever) -> None:
        self.name, self._retriever = name, retriever

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """What the retriever finds."""
        found = self._retriever.search(queries, k)
        listed = isinstance(found, list) and len(found) == len(queries)
        if not listed or not all(isinstance(passages, list) for passages in found):
            raise RetrieverError(
                f"{self.name} returned {found!r:.80} for {len(queries)} queries; {_MUST}"
            )
        for passage in (passage for passages in found for passage in passages):
            if not isinstance(passage, Passage):
                raise RetrieverError(
                    f"{self.name} returned {passage!r:.80} among passages; {_MUST}"
                )
        return found

    asearch = in_thread


_MUST = "search(queries, k) must return a list of Passage for each query"
