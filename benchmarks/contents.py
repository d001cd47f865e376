"""Whether a run played the very questions of the suite whose name it has, and what to call them.

`played` is `Settings.suite` of a run: name, rows, sha256 (of the content).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.suites import Suite, suites


def heading(played: Mapping[str, Any]) -> str:
    """The title that papers use ("AIME 2024"); of other questions than that suite's, the name."""
    known = suites().get(played["name"])
    return str(played["name"]) if known is None or foreign(played) else _title(known)


def foreign(played: Mapping[str, Any]) -> str | None:
    """In words, that the questions or golds are not those of the suite of that name.

    None where they are, where nobody has a hash of them, and for a name that no suite has.
    """
    known = suites().get(played["name"])
    if known is None:
        return None
    end = f"of {_title(known)}: do not compare it with results on that"
    if known.sha256 is not None and played["sha256"] != known.sha256:
        return (f"content {played['sha256'][:12]}… is NOT the canonical {known.sha256[:12]}… "
                f"{end}")  # fmt: skip
    if known.rows is not None and played["rows"] != known.rows:
        return f"content of {played['rows']} questions is NOT that {end}"
    return None


def _title(known: Suite) -> str:
    return known.name if known.tasks is not None else known.title.partition(" (")[0]
