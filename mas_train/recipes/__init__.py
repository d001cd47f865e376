"""Recipes: whole configurations by name, wherever a configuration file is expected.

    mas-train recipes                          # what there is
    mas-train plan math_qwen3_4b_separate      # what it needs
    mas-train run math_qwen3_0.6b_one_gpu --set train.steps=20

Their `about` says what each is, what it needs, and where its numbers are from.
"""

from __future__ import annotations

from pathlib import Path

from mas_envs.errors import UnknownName

FOLDER = Path(__file__).parent


def recipes() -> dict[str, Path]:
    """Every recipe by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def recipe(name: str | Path) -> Path:
    """The file that `name` means: a path, or else the recipe of that name.

    Raises `UnknownName` for a name that is neither; a path is not looked at.
    """
    path = Path(name)
    if path.exists() or path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        return path
    known = recipes()
    if str(name) not in known:
        raise UnknownName("recipe", str(name), known, fix="or give a YAML file")
    return known[str(name)]
