"""Where a model's files are: a folder, a Hugging Face id, or the small model that comes along."""

from __future__ import annotations

from pathlib import Path

DEMO = "mas-gym/demo"
"""The demo's warm-started solver/verifier model (0.2 M parameters), shipped in this package."""


def model_path(path: str | Path) -> str:
    """`path`, or the folder of the shipped model for `mas-gym/demo`."""
    if str(path) == DEMO:
        return str(Path(__file__).parent / "demo" / "weights")
    return str(path)
