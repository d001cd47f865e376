"""Objects named by text: "package.module:attribute"."""

from __future__ import annotations

from typing import Any

import retrievers.by_name
from mas_envs.errors import UserError
from retrievers.base import RetrieverError


def by_name(name: str) -> Any:
    """What "module:attribute" names (see `retrievers.by_name`). Raises `UserError`."""
    try:
        return retrievers.by_name.by_name(name)
    except RetrieverError as error:
        raise UserError(str(error)) from error.__cause__
