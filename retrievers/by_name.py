"""Objects named by text: "package.module:attribute"."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import Any

from retrievers.base import RetrieverError


def by_name(name: str) -> Any:
    """What "module:attribute" names; modules of the current folder are found, too.

    A console script, unlike `python -m`, does not look into the folder it is called in. We look
    there last, so that a folder `benchmarks/` of the user's hides nothing that is installed.
    Raises `RetrieverError` when there is no such module or attribute.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        hint = _hint(module, attribute)
        raise RetrieverError(f"{name!r} cannot be imported: {error}{hint}") from error


def _hint(module: str, attribute: str) -> str:
    if module in sys.modules:
        near = difflib.get_close_matches(attribute, vars(sys.modules[module]), n=1, cutoff=0.5)
        return f"; did you mean '{module}:{near[0]}'?" if near else ""
    return "; modules are looked for in the current folder and in PYTHONPATH"


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        here = os.getcwd()
        itself = f"{name}.".startswith(f"{error.name}.")  # not one that the module wants to import
        if not itself or here in sys.path:
            raise
        sys.path.append(here)
        return importlib.import_module(name)
