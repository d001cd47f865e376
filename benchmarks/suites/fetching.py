"""A suite's file, from the copy that its hash was computed from, or from the Hugging Face hub.

`retrievers.fetch` downloads: pieces that continue after an interruption, checked by digest.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from benchmarks.suites.rows import PYARROW, SUFFIXES
from benchmarks.suites.spec import Hub, Origin, Suite
from mas_envs.errors import UserError
from retrievers.base import Progress, RetrieverError, silent

GITHUB = "https://raw.githubusercontent.com"


class Fetched(NamedTuple):
    """A file, and in words where it is from and whether that is pinned."""

    path: Path
    source: str


def fetch_suite(
    spec: Suite,
    folder: Path,
    *,
    from_hub: bool = False,
    endpoint: str | None = None,
    progress: Progress = silent,
) -> Fetched:
    """The suite's file under `folder`, named as `load_suite` finds it there.

    From `origin`, whose bytes are pinned, where there is one and unless `from_hub`; else from the
    hub. `endpoint` is a mirror of the one it is from. What is there already is checked and not
    fetched again. Raises `UserError`, and as `retrievers.fetch.download.get`.
    """
    if spec.tasks is not None:
        raise UserError(f"suite {spec.name!r} is embedded; there is nothing to fetch")
    if spec.origin is not None and not from_hub:
        return _from_origin(spec.name, spec.origin, folder, endpoint or GITHUB, progress)
    if spec.hub is None:
        fix = "; drop --from-hub" if spec.origin is not None else ""
        raise UserError(f"suite {spec.name!r} names no data set of the hub{fix}")
    return _from_hub(spec.name, spec.hub, folder, endpoint, progress)


def _from_origin(
    name: str, origin: Origin, folder: Path, endpoint: str, progress: Progress
) -> Fetched:
    from retrievers.fetch.download import get
    from retrievers.fetch.hub import Part, Target

    url = f"{endpoint.rstrip('/')}/{origin.repo}/{origin.commit}/{origin.path}"
    path = folder / f"{name}{_suffix(origin.path)}"
    get([Target(path, (Part(url, origin.bytes, (origin.sha256,)),))], progress, token=False)
    return Fetched(path, f"{origin}, pinned by commit and SHA-256")


def _from_hub(
    name: str, hub: Hub, folder: Path, endpoint: str | None, progress: Progress
) -> Fetched:
    from retrievers.fetch.download import get
    from retrievers.fetch.hub import plan

    planned = plan(hub.id, [hub.file], folder, hub.revision, endpoint=endpoint)
    readable = [target for target in planned if target.path.suffix in SUFFIXES]
    if len(readable) != 1:
        names = ", ".join(str(target.path.relative_to(folder)) for target in planned)
        raise RetrieverError(f"{hub.id}: {hub.file!r} is to name one {' or '.join(SUFFIXES)} file; "
                             f"it names {names}")  # fmt: skip
    [target] = readable
    if target.path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UserError(f"{hub.id} {target.path.name}: {PYARROW}")
    renamed = target._replace(path=folder / f"{name}{target.path.suffix}")
    get([renamed], progress)
    commit = re.search(r"/resolve/([^/]+)/", target.parts[0].url)
    assert commit is not None, target
    pinned = "pinned" if hub.revision else "revision unpinned"
    return Fetched(renamed.path, f"{hub.id}@{commit[1]}, {pinned}")


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix
