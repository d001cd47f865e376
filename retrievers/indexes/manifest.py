"""`manifest.json`, the last file of an index to be written: what it is and how it was made."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from retrievers.base import Progress, RetrieverError, silent

NAME = "manifest.json"
FORMAT = 1  # of the folder: the manifest itself, `passages/`, and where the backends' files are
_WHAT = "mas-gym index"
_BLOCK = 2**20


def mas_gym_version() -> str:
    """The version of this package, "unknown" where it is not installed."""
    try:
        return metadata.version("mas-gym")
    except metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class Manifest:
    """What stands in `manifest.json`, beside the format and a checksum of the whole.

    `options` are those given to `build`, `settings` what the backend returned: its own versions
    and every value that a search needs. `corpus`: names of the sources, number of passages, and a
    SHA-256 that is the same for the same passages in any file format. `files`: path below the
    folder to {"bytes", "sha256"}.
    """

    backend: str
    options: dict[str, Any]
    settings: dict[str, Any]
    corpus: dict[str, Any]
    duplicates: str
    files: dict[str, dict[str, Any]]
    mas_gym: str = field(default_factory=mas_gym_version)
    created: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(int(file["bytes"]) for file in self.files.values())


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest` into `folder`, down to the disk."""
    content = {"what": _WHAT, "format": FORMAT, **asdict(manifest)}
    content["checksum"] = _checksum(content)
    with (folder / NAME).open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the index in `folder`.

    Raises RetrieverError when there is none, when it was changed, and for another format.
    """
    path = folder / NAME
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RetrieverError(f"{folder}: no index, for it has no {NAME}") from None
    except OSError as error:
        raise RetrieverError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RetrieverError(f"{path}: not JSON ({error}); build the index again") from None
    if not isinstance(content, dict) or content.get("what") != _WHAT:
        raise RetrieverError(f"{path}: not the manifest of an index")
    if content.get("format") != FORMAT:
        found = content.get("format")
        raise RetrieverError(
            f"{folder}: an index of format {found!r:.40}, made by mas-gym "
            f"{content.get('mas_gym')!s:.40}; this version reads format {FORMAT}: build it again"
        )
    stated = content.pop("checksum", None)
    if stated != _checksum(content):
        raise RetrieverError(f"{path}: damaged or changed by hand; build the index again")
    return Manifest(**{name.name: content[name.name] for name in fields(Manifest)})


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def listed_files(
    folder: Path, besides: frozenset[str], progress: Progress = silent
) -> dict[str, dict[str, Any]]:
    """`Manifest.files` of all that lies in `folder` but for the names `besides`, synced to disk."""
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in besides
    ]
    report = _counter("hashing (bytes)", sum(path.stat().st_size for path in paths), progress)
    return {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": _sha256(path, report, sync=True),
        }
        for path in paths
    }


def sync_files(folder: Path) -> None:
    """Have all that was written in `folder` on the disk, in case the machine stops."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folders(folder)


def sync_folders(folder: Path) -> None:
    """Have the names of all files in `folder` and in the folders below it on the disk."""
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(OSError):  # not everywhere can a folder be opened
            if path.is_dir() and not path.is_symlink():
                sync_folder(path)


def sync_folder(folder: Path) -> None:
    """Have the names in one folder on the disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Raise RetrieverError unless every file of the index is there with the size it had."""
    for name, file in manifest.files.items():
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            raise RetrieverError(
                f"{folder / name}: {error.strerror}; copy or build the index again"
            ) from None
        if size != file["bytes"]:
            raise RetrieverError(
                f"{folder / name}: {size:,} bytes instead of {file['bytes']:,}, so it was cut "
                "short or changed; copy or build the index again"
            )


def check_contents(folder: Path, manifest: Manifest, progress: Progress = silent) -> None:
    """Raise RetrieverError unless every file of the index is what it was. Reads all of them."""
    check_sizes(folder, manifest)
    report = _counter("checking (bytes)", manifest.bytes, progress)
    for name, file in manifest.files.items():
        try:
            found = _sha256(folder / name, report)
        except OSError as error:
            raise RetrieverError(f"{folder / name}: {error.strerror}") from None
        if found != file["sha256"]:
            raise RetrieverError(
                f"{folder / name}: damaged or changed, its SHA-256 is not that of the manifest; "
                "copy or build the index again"
            )


def _counter(stage: str, total: int, progress: Progress) -> Callable[[int], None]:
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        progress(stage, done, total)

    return count


def _sha256(path: Path, report: Callable[[int], None], sync: bool = False) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            report(len(block))
        if sync:
            os.fsync(file.fileno())
    return digest.hexdigest()
