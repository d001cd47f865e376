"""Where a model's files are: a folder, a Hugging Face id, or a small model that comes along."""

from __future__ import annotations

from pathlib import Path

DEMO = "mas-gym/demo"
"""The demo's warm-started solver/verifier model (0.2 M parameters), shipped in this package."""
SEARCH = "mas-gym/search"
"""The warm-started model of a team that searches tinyworld (0.4 M), shipped likewise."""

_SHIPPED = {DEMO: "weights", SEARCH: "search_weights"}


def model_path(path: str | Path) -> str:
    """`path`, or the folder of a shipped model for `mas-gym/demo` and `mas-gym/search`."""
    if str(path) in _SHIPPED:
        return str(Path(__file__).parent / "demo" / _SHIPPED[str(path)])
    return str(path)
