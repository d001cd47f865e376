"""Objects named by text: "package.module:attribute"."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from mas_envs.errors import UserError


def by_name(name: str) -> Any:
    """What "module:attribute" names; modules of the current folder are found, too.

    A console script, unlike `python -m`, does not look into the folder it is called in. We look
    there last, so that a folder `benchmarks/` of the user's hides nothing that is installed.
    Raises `UserError` when there is no such module or attribute.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{name!r} cannot be imported: {error}") from error


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
