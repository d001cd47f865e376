"""Every error a user can meet, and the two ways an episode can go wrong.

A fault of the *model* is never an exception: it is an outcome with a status (design: graded as
wrong). A fault of the *machinery* raises a `MachineryError`; the rollout retries it twice and then
records a failed episode, which enters no statistic. Everything else is a user's mistake
(`UserError`: one message that names the file, key, value and fix) or a bug (propagates).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MasError(Exception):
    """Base of all errors raised on purpose by mas-gym."""


class UserError(MasError, ValueError):
    """A mistake in what the user gave us; command lines print it and exit with code 2."""


FEW = 12  # names that are listed in full beside the nearest one


class UnknownName(UserError):
    """A name (environment id, preset, key …) that does not exist; suggests the nearest one.

    All known names are listed if they are few or none is near.
    """

    def __init__(
        self, kind: str, name: str, known: Iterable[str], where: str = "", fix: str = ""
    ) -> None:
        known = sorted(known)
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hints = [f"did you mean {close[0]!r}?"] if close else []
        if not close or 1 < len(known) <= FEW:
            hints.append(f"known: {', '.join(known) or 'none'}")
        message = f"{where + ': ' if where else ''}unknown {kind} {name!r}; {' '.join(hints)}"
        super().__init__(message + (f"; {fix}" if fix else ""))


class BadFile(UserError):
    """A file that cannot be read as what it should be. `line` is 1-based where it applies."""

    def __init__(self, path: object, problem: str, line: int | None = None, fix: str = "") -> None:
        place = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {problem}" + (f"; {fix}" if fix else ""))


class InvalidAction(UserError, TypeError):
    """An action that is not a string; raised before any state of the environment changes."""


class WorkflowError(MasError):
    """A workflow broke its own contract (yielded the wrong thing, unknown agent or tool)."""


class ReplayMismatch(MasError):
    """A replayed workflow asked something else than the recording says."""


class CheckFailed(MasError):
    """An environment does not keep a promise; the message says which (`mas-envs check`)."""


class MachineryError(MasError):
    """An engine, tool, retriever or grader failed for a reason outside the model's response."""


class TooManyFailures(MasError):
    """More than the allowed share of recent episodes failed; the run stops."""
