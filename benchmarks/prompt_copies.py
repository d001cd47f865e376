"""A run's own prompt files, copied into its folder, so that whatever replays the run has them.

DIR/prompts.toml           of `--prompts FILE.toml`: for all agents
DIR/prompts.solver.toml    of `--prompts solver=FILE.toml,…`: one for each role or agent with a file
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mas_envs.files import whole_file

PATTERN = "prompts*.toml"


def sets_of(prompts: str) -> dict[str, str]:
    """Role or agent → its prompt set or file, as `mas_envs.prompts.load_prompts` reads a text.

    Under "" the one for all agents.
    """
    if "=" not in prompts or Path(prompts).is_file():
        return {"": prompts}
    pairs = (part.partition("=") for part in prompts.split(","))
    return {whose.strip(): own.strip() for whose, _, own in pairs}


def without_folders(prompts: str) -> str:
    """The same prompts, files without the folders of this machine."""
    named = ((whose, Path(own).name) for whose, own in sets_of(prompts).items())
    return ",".join(f"{whose}={own}" if whose else own for whose, own in named)


def copy_prompts(prompts: str, folder: Path) -> None:
    """Copy the files among these prompts into a run's folder."""
    for whose, own in sets_of(prompts).items():
        if _is_file(own):
            with whole_file(folder / _name(whose)) as temporary:
                shutil.copyfile(own, temporary)


@contextmanager
def copied_prompts(folder: Path, recorded: Any) -> Iterator[Any]:
    """What to make the environment with that a run recorded as `without_folders(prompts)`.

    The copies lie under the names that the files had, since a set without a name is identified by
    that of its file. Where the run has no copy, and for a shipped set, it is as recorded.
    """
    if not isinstance(recorded, str):
        yield recorded
        return
    chosen = sets_of(recorded)
    with tempfile.TemporaryDirectory() as temporary:
        for whose, own in chosen.items():
            copy = folder / _name(whose)
            if _is_file(own) and copy.is_file():
                path = Path(temporary) / f"of-{whose}" / Path(own).name
                path.parent.mkdir()
                shutil.copyfile(copy, path)
                chosen[whose] = str(path)
        yield chosen.get("", chosen)


def _is_file(own: str) -> bool:
    return own.endswith(".toml")  # as `load_prompts` tells files from shipped sets


def _name(whose: str) -> str:
    return f"prompts.{whose}.toml" if whose else "prompts.toml"
