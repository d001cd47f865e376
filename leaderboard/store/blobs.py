"""Files by name: in a folder, or in any store that fsspec knows (s3://, gs://, …)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mas_envs.errors import MachineryError, UserError

NAME = re.compile(r"[0-9a-f]{64}(\.[a-z]+)?")


class Blobs:
    """Blobs are named by a SHA-256 and a suffix, written whole and never changed."""

    def __init__(self, url: str) -> None:
        """`url`: a folder, or an fsspec URL. Raises `UserError` for one that cannot be used."""
        if "://" in url and not url.startswith("file://"):
            self.folder: Path | None = None
            self._remote, self._root = _file_system(url)
            return
        self.folder = Path(url.removeprefix("file://"))
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"blobs {self.folder}: {error.strerror}") from None

    def keep(self, path: Path, name: str) -> None:
        """Take the file `path` as blob `name`; it is on disk when this returns, and `path` gone."""
        if self.folder is None:
            try:
                self._remote.put_file(str(path), self._key(name))
                kept = self._remote.info(self._key(name))["size"]
            except Exception as error:  # each store has its own
                raise MachineryError(f"blob {name} cannot be stored: {error}") from None
            if kept != path.stat().st_size:
                raise MachineryError(f"blob {name}: the store kept {kept} bytes of it")
            path.unlink()
            return
        target = self._path(name)
        if not target.parent.exists():
            target.parent.mkdir(mode=0o700, exist_ok=True)
            sync(self.folder)
        if os.stat(path).st_dev != os.stat(target.parent).st_dev:
            path = _copied(path, target)
        sync(path)
        path.chmod(0o600)
        path.replace(target)
        sync(target.parent)

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """The blob as a file to read. Raises `MachineryError` if it cannot be had."""
        if self.folder is not None:
            if not self._path(name).is_file():
                raise MachineryError(f"blob {name} is missing")
            yield self._path(name)
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "blob"
            try:
                self._remote.get_file(self._key(name), str(path))
            except Exception as error:
                raise MachineryError(f"blob {name} cannot be read: {error}") from None
            yield path

    def part(self, name: str, start: int, length: int) -> bytes:
        """`length` bytes of a blob from `start`. Raises `MachineryError`."""
        place = self._key(name) if self.folder is None else self._path(name)
        try:
            if isinstance(place, str):
                content: bytes = self._remote.cat_file(place, start=start, end=start + length)
            else:
                with place.open("rb") as file:
                    file.seek(start)
                    content = file.read(length)
        except Exception as error:
            raise MachineryError(f"blob {name} cannot be read: {error}") from None
        if len(content) != length:
            raise MachineryError(f"blob {name} ends early")
        return content

    def remove(self, name: str) -> None:
        """Forget a blob; nothing happens if there is none. Raises `MachineryError`."""
        try:
            if self.folder is not None:
                self._path(name).unlink(missing_ok=True)
            elif self.size(name) is not None:
                self._remote.rm_file(self._key(name))
        except FileNotFoundError:
            return
        except Exception as error:
            raise MachineryError(f"blob {name} cannot be removed: {error}") from None

    def size(self, name: str) -> int | None:
        """Bytes of a blob; None if there is none of that name."""
        try:
            if self.folder is not None:
                return self._path(name).stat().st_size
            return int(self._remote.info(self._key(name))["size"])
        except FileNotFoundError:
            return None
        except Exception as error:
            raise MachineryError(f"blob {name} cannot be looked up: {error}") from None

    def _key(self, name: str) -> str:
        assert NAME.fullmatch(name), name
        return f"{self._root}/{name[:2]}/{name}"

    def _path(self, name: str) -> Path:
        assert self.folder is not None and NAME.fullmatch(name), name
        return self.folder / name[:2] / name


def _file_system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    try:
        remote, root = url_to_fs(url, use_listings_cache=False)
    except (ImportError, ValueError, TypeError) as error:
        from retrievers.http.connections import without_password

        raise UserError(f"blobs {without_password(url)}: {error}") from None
    return remote, root.rstrip("/")


def _copied(path: Path, target: Path) -> Path:
    """`path`, moved to the file system of `target`, under a name that nobody reads."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.move(path, beside)
    return beside


def sync(path: Path) -> None:
    """Bring to disk a file's content, or a folder's names."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
