"""Write the golden files, one per kind of case."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mas_train.conformance.generate import (
    advantage_cases,
    correction_cases,
    loss_cases,
    token_advantage_cases,
    weight_cases,
)

MODULES = (advantage_cases, token_advantage_cases, loss_cases, correction_cases, weight_cases)


def golden() -> dict[str, str]:
    """The text of each golden file, by its name without `.json`."""
    files: dict[str, list[dict[str, Any]]] = {}
    for module in MODULES:
        for kind, entries in module.cases().items():
            files.setdefault(kind, []).extend(entries)
    return {kind: _text(entries) for kind, entries in files.items()}


def _text(entries: list[dict[str, Any]]) -> str:
    lines = [
        json.dumps(
            {**entry, "expected": _rounded(entry["expected"])}, ensure_ascii=False, allow_nan=False
        )
        for entry in entries
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.13g}") + 0.0 if isinstance(value, float) else value


def main(folder: Path) -> None:
    """Write every file into `folder`."""
    folder.mkdir(exist_ok=True)
    for kind, text in golden().items():
        (folder / f"{kind}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1] / "golden")
