"""`mas-train export`: the models of a run as plain Hugging Face folders.

    export(Path("runs/first"), Path("first-models"))              # first-models/<model>/, each
    export(Path("runs/first"), Path("solver"), agent="solver")    # solver/, that agent's model

A folder holds weights, configuration, generation configuration, tokenizer and chat template, and
loads in transformers and vLLM. Weights are the checkpoint's bits; LoRA adapters are merged into
their base.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.protocol import role_of
from mas_train.run import checkpoint as checkpoints
from mas_train.run.run_folder import disk_errors

ADAPTER = "adapter_config.json"
"""What makes a folder that of an adapter."""


def export(source: Path, out: Path, agent: str | None = None) -> dict[str, Path]:
    """Write the trained models of a run (its newest checkpoint) or of a checkpoint; model → folder.

    With `agent`, a role or agent id, `out` is the folder of the model that plays it; otherwise it
    holds one folder for each trained model. It appears whole or not at all.

    Raises `UserError` if `out` exists, for an agent that the team lacks or whose model was not
    trained, and without peft where it is needed; `BadFile` for a checkpoint that is damaged.
    """
    found = checkpoint_of(source)
    chosen = _chosen(found, agent)
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} exists, and nothing is overwritten; give another folder")
    temporary = out.parent / f".{out.name}.{os.getpid()}"
    with disk_errors(out.parent, "make room there, or give another folder"):
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        try:
            for name in chosen:
                _export(found / name, temporary if agent is not None else temporary / name)
            temporary.rename(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return {name: out if agent is not None else out / name for name in chosen}


def checkpoint_of(source: Path) -> Path:
    """The checkpoint that `source` is, or the newest one of that run. Raises `UserError`."""
    if (source / "state.json").is_file():
        return source
    newest = checkpoints.newest(source / "checkpoints")
    if newest is None:
        raise UserError(f"{source}: neither a checkpoint nor a run that has one; give runs/NAME or "
                        "runs/NAME/checkpoints/step-…")  # fmt: skip
    return newest


def players(checkpoint: Path) -> Mapping[str, str]:
    """Role or agent id → model of a checkpoint's team. Raises `BadFile`."""
    return _team(checkpoint)["agents"]  # type: ignore[no-any-return]


def _team(checkpoint: Path) -> dict[str, Any]:
    team = checkpoints.read_state(checkpoint).get("team")
    if not isinstance(team, dict) or not all(
        isinstance(team.get(key), dict) for key in ("agents", "frozen")
    ):
        raise BadFile(checkpoint / "state.json", "does not say what its team is")
    return team


def _chosen(checkpoint: Path, agent: str | None) -> list[str]:
    """The models to write."""
    team = _team(checkpoint)
    if agent is None:
        return sorted(set(team["agents"].values()) - set(team["frozen"]))
    entry = agent if agent in team["agents"] else role_of(agent)
    if entry not in team["agents"]:
        raise UnknownName("agent", agent, team["agents"], where=str(checkpoint))
    model: str = team["agents"][entry]
    if model in team["frozen"]:
        raise UserError(f"--agent {agent}: its model {model!r} was not trained; it is "
                        f"{team['frozen'][model]}")  # fmt: skip
    return [model]


def _export(folder: Path, out: Path) -> None:
    """One model. Raises `BadFile`."""
    if not folder.is_dir():
        raise BadFile(folder, "is missing", fix="export another checkpoint")
    if (folder / ADAPTER).is_file():
        _merge(folder, out)
    else:
        _check_weights(folder)
        out.mkdir(exist_ok=True)
        for path in sorted(folder.iterdir()):
            if path.is_file():
                shutil.copyfile(path, out / path.name)
    _complete(folder, out)


def _check_weights(folder: Path) -> None:
    """Raises `BadFile` for a weight file that cannot be read to its end, and if there is none."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BadFile(folder, "has no *.safetensors", fix="export another checkpoint")
    for file in files:
        try:
            with safe_open(file, framework="numpy") as opened:
                opened.keys()
        except (SafetensorError, OSError) as error:
            raise BadFile(file, f"damaged ({error})", fix="export another checkpoint") from None


def _merge(folder: Path, out: Path) -> None:
    """Base and adapter as one model, in the run's dtype. Raises `UserError`."""
    from mas_train.learner.lora import load_merged

    model, tokenizer = load_merged(folder, _dtype(folder))
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _dtype(folder: Path) -> str:
    """The dtype that the run gave this model; its config.yaml lies above the checkpoint."""
    from mas_train.config import load

    file = folder.parent.parent.parent / "config.yaml"
    model = load(file).models.get(folder.name) if file.is_file() else None
    return "float32" if model is None else model.dtype


def _complete(folder: Path, out: Path) -> None:
    """Raises `BadFile` unless configuration, tokenizer and chat template load; adds a generation
    configuration where the model brought none.
    """
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    try:
        config = AutoConfig.from_pretrained(out)
        tokenizer = AutoTokenizer.from_pretrained(out)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadFile(folder, f"does not load ({reason})", fix="export another one") from None
    if not tokenizer.chat_template:
        raise BadFile(folder, "its tokenizer has no chat template")
    if not (out / "generation_config.json").is_file():
        GenerationConfig.from_model_config(config).save_pretrained(out)
