"""Where a model's files are: a folder, a Hugging Face id, or a small model that comes along."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mas_train.config import Config

DEMO = "mas-gym/demo"
"""The demo's warm-started solver/verifier model (0.2 M parameters), shipped in this package."""
SEARCH = "mas-gym/search"
"""The warm-started model of a team that searches tinyworld (0.4 M), shipped likewise."""

_SHIPPED = {DEMO: "weights", SEARCH: "search_weights"}


def model_path(path: str | Path) -> str:
    """`path`, or the folder of a shipped model for `mas-gym/demo` and `mas-gym/search`.

    A path that begins with `~` begins with the user's home: no shell has seen it.
    """
    if str(path) in _SHIPPED:
        return str(Path(__file__).parent / "demo" / _SHIPPED[str(path)])
    return str(Path(path).expanduser()) if str(path).startswith("~") else str(path)


def check_models(config: Config) -> None:
    """Raises `Misconfigured` for a path that can be no Hugging Face id and is no model's folder,
    and for a revision of a folder, which has none. Nothing is downloaded.
    """
    from mas_train.config import Misconfigured

    for name, model in config.models.items():
        if model.engine.name == "http":  # the name of a model at the server
            continue
        found = model_path(model.path)
        key, folder = f"models.{name}.path", Path(found)
        if not folder.is_dir():
            if folder.exists():
                raise Misconfigured(f"{key}: {model.path!r} is a file; give the folder it is in")
            if found.startswith(("/", ".")) or found.count("/") > 1:
                raise Misconfigured(
                    f"{key}: there is no folder {found!r}; give a folder with config.json, "
                    "weights and tokenizer, or an id like Qwen/Qwen3-4B"
                )
            continue
        if not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
            raise Misconfigured(
                f"{key}: the folder {found!r} has no config.json; give one with config.json, "
                "weights and tokenizer, as mas-train export writes them"
            )
        if model.revision != "main":
            raise Misconfigured(
                f"models.{name}.revision: {model.revision!r} is not looked at, for "
                f"{model.path!r} is a folder; remove it"
            )
