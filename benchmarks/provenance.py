"""What a result was made with: versions of the packages, state of the checkout."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from importlib import metadata

PACKAGES = ("mas-gym", "numpy", "msgspec", "sympy", "math-verify", "torch", "transformers")


def versions() -> dict[str, str]:
    """Of Python and the packages that a result depends on, without importing them."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def revision() -> tuple[str | None, bool | None]:
    """(commit, are there uncommitted changes) of the git checkout we are called in, if any."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
        if head.returncode:
            return None, None
        status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True)
        return head.stdout.strip(), bool(status.stdout.strip())
    except OSError:
        return None, None
