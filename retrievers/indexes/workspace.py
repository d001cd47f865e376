"""`OUT.partial`, where an index is built: one build at a time, and all of it or nothing.

OUT.partial/lock         held by the process that builds, which stands in it
            state.json   for whom the passages there were written, once they are complete
            passages/    then one folder for the backend
            manifest.json, with which the folder becomes OUT
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retrievers.base import RetrieverError, counted
from retrievers.indexes import manifest

LOCK, STATE, REPLACED = "lock", "state.json", "replaced"
NOT_INDEX = frozenset((LOCK, STATE, REPLACED, manifest.NAME))  # not listed in the manifest


class Workspace:
    """The folder in which `open_workspace` lets one build work."""

    def __init__(self, out: Path, folder: Path) -> None:
        self.out, self.folder = out, folder
        self.keep_if_stopped = False  # by Ctrl-C: there is something to go on from
        self.keep_if_failed = False  # but for a mistake, with which it would fail again

    def read_state(self) -> dict[str, Any]:
        """What `write_state` wrote here, perhaps for another build; {} if nothing."""
        try:
            state = json.loads((self.folder / STATE).read_bytes())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def write_state(self, state: dict[str, Any]) -> None:
        """Remember `state` for a build that goes on from here."""
        new = self.folder / f"{STATE}.new"
        new.write_text(json.dumps(state), encoding="utf-8")
        new.replace(self.folder / STATE)

    def clear(self) -> None:
        """Remove all but the lock."""
        for path in sorted(self.folder.iterdir(), key=lambda path: path.name != STATE):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()

    def remove(self) -> None:
        """Remove the folder; its lock last, which tells that it is ours."""
        with contextlib.suppress(OSError):
            self.clear()
            (self.folder / LOCK).unlink()
            self.folder.rmdir()

    def give_back(self) -> None:
        """Restore the index that `publish` was to replace, if it came no further."""
        if (self.folder / REPLACED).exists() and not self.out.exists():
            (self.folder / REPLACED).rename(self.out)

    def publish(self) -> None:
        """Make the folder OUT. An index that was there before goes first, and only now."""
        manifest.sync_folders(self.folder)
        if (self.out / manifest.NAME).exists():
            self.out.rename(self.folder / REPLACED)
        self.folder.rename(self.out)
        _sync_folder(self.out.parent)
        # The lock stays until now, so that nobody else could take the folder for abandoned.
        shutil.rmtree(self.out / REPLACED, ignore_errors=True)
        for name in (LOCK, STATE):
            (self.out / name).unlink(missing_ok=True)


@contextlib.contextmanager
def open_workspace(out: Path, overwrite: bool) -> Iterator[Workspace]:
    """A workspace for the index `out`, removed if the build fails (see `Workspace.keep_if_…`).

    Raises RetrieverError when `out` must not be written, or is being written by another process.
    """
    try:
        check_free(out, overwrite)
    except OSError as error:
        raise RetrieverError(f"{out}: no place for an index: {error.strerror}") from None
    partial = Path(f"{out}.partial")
    with _locked(partial):
        workspace = Workspace(out, partial)
        workspace.give_back()  # killed between the two renames
        check_free(out, overwrite)  # the other process may just have ended
        try:
            yield workspace
        except BaseException as error:
            workspace.give_back()
            stopped = not isinstance(error, Exception)
            failed_by_chance = not isinstance(error, RetrieverError) and workspace.keep_if_failed
            if not (workspace.keep_if_stopped if stopped else failed_by_chance):
                workspace.remove()
            elif isinstance(error, KeyboardInterrupt) and not error.args:
                error.args = (f"the same build goes on from {partial}",)
            raise


def check_free(out: Path, overwrite: bool) -> None:
    """Raise RetrieverError if something is at `out` that a build must not replace."""
    if not out.exists() and not out.is_symlink():
        return
    if not out.is_dir():
        raise RetrieverError(f"{out}: is there and no folder; give another place for the index")
    # A finished index takes the place of the folder itself, which is not always possible.
    if os.path.ismount(out):
        raise RetrieverError(f"{out}: a file system begins there; give a folder in it")
    with contextlib.suppress(FileNotFoundError):  # the working directory is gone
        if out.samefile("."):
            raise RetrieverError(f"{out}: the working directory; give a folder in it")
    if not any(out.iterdir()):
        return
    if not (out / manifest.NAME).exists():
        raise RetrieverError(f"{out}: a folder with other files; give another place for the index")
    try:
        found = manifest.read_manifest(out)
        count = counted(found.corpus["passages"], "passage")
        what = f"an index is there ({found.backend}, {count}, made {found.created})"
    except RetrieverError as error:
        if "not the manifest of an index" in str(error):
            raise
        what = "an index is there, which cannot be read"
    if not overwrite:
        raise RetrieverError(
            f"{out}: {what}; load it, give another place, or overwrite it (--overwrite, "
            "overwrite=True)"
        )


@contextlib.contextmanager
def _locked(partial: Path) -> Iterator[None]:
    while True:
        if _is_of_others(partial):
            raise RetrieverError(f"{partial}: is no unfinished build of ours; move it away")
        lock = _open_lock(partial)
        if lock is None:
            continue
        try:
            if not _lock(lock):
                raise RetrieverError(
                    f"{partial}: another build (process {_owner(lock)}) writes this index now; "
                    "wait for it or give another place"
                )
            if _is_at(lock, partial / LOCK):
                with contextlib.suppress(OSError):  # a full disk: nobody is told the number
                    os.truncate(lock, 0)
                    os.pwrite(lock, str(os.getpid()).encode(), 0)
                yield
                return
        finally:
            os.close(lock)


def _is_of_others(partial: Path) -> bool:
    """Whether something is there that no build of ours left."""
    try:
        names = os.listdir(partial)
    except OSError:
        return False
    return bool(names) and LOCK not in names


def _open_lock(partial: Path) -> int | None:
    """The file, in a folder that is made; None if another build has just made that the index."""
    made = False
    try:
        partial.mkdir(parents=True, exist_ok=True)
        made = True
        return os.open(partial / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        if made and isinstance(error, FileNotFoundError):
            return None
        raise RetrieverError(f"{partial}: cannot write there: {error.strerror}") from None


def _lock(file: int) -> bool:
    """Whether the lock is ours. A lock ends with its process, however that ends."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks (some network ones) is no reason to refuse.
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _owner(lock: int) -> str:
    return os.pread(lock, 20, 0).decode(errors="replace") or "unknown"


def _is_at(file: int, path: Path) -> bool:
    """Whether `path` still is the open file: its folder may have become the index meanwhile."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not everywhere can a folder be opened
        manifest.sync_folder(folder)


def link_file(source: Path, path: Path) -> None:
    """Let `path` be the file `source`, by a hard link or, across file systems, a symbolic one."""
    path.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), path)
    except OSError:
        path.symlink_to(source.resolve())
