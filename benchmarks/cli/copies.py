"""`--data`: where the local copies of suites are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mas_envs.errors import UserError


def named_copies(data: Sequence[str]) -> tuple[dict[str, Path], list[Path]]:
    """{suite: file} of each SUITE=FILE, and the paths that are for any suite.

    Raises `UserError` for a suite that is given two files or none.
    """
    files: dict[str, Path] = {}
    paths = []
    for one in data:
        name, equals, file = one.partition("=")
        if not equals or Path(one).exists():
            paths.append(Path(one))
        elif not name or not file:
            raise UserError(f"--data {one!r}; write it as SUITE=FILE")
        elif name in files:
            raise UserError(f"--data {name}=…: two files, {files[name]} and {file}; give one")
        else:
            files[name] = Path(file)
    return files, paths
