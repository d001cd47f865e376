"""What a training run says about its team: who plays what, where, and with how many tokens.

`mas-train` writes it into the state.json of every checkpoint. A team is measured as it was
trained unless the command line says otherwise.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from mas_envs.errors import BadFile, UserError
from mas_envs.protocol import role_of

_STEP = re.compile(r"step-(\d{6,})")


class Environment(msgspec.Struct, frozen=True):
    """`mas_envs.make(id, prompts=prompts, **args)`; `prompts` None: the environment's own."""

    id: str
    args: dict[str, Any] = {}
    prompts: str | dict[str, str] | None = None


class Trained(msgspec.Struct, frozen=True):
    """The "team" of a state.json: role or agent id → model, and the paths of untrained models."""

    env: Environment
    agents: dict[str, str]
    frozen: dict[str, str]
    max_tokens: int

    def model_of(self, agent: str, checkpoint: Path) -> str:
        """Path (or hub id) of what plays the agent of that id, or of its role if the team has none
        of that id. Raises `UserError` for a role it lacks.
        """
        role = agent if agent in self.agents else role_of(agent)
        if role not in self.agents:
            known = ", ".join(self.agents)
            raise UserError(f"--policy {checkpoint}: its team has no {role!r}, only {known}; "
                            f"add {role}=…")  # fmt: skip
        name = self.agents[role]
        return self.frozen.get(name, str(checkpoint / name))


def checkpoint_of(target: str) -> Path | None:
    """The checkpoint that `target` is, or the newest one of the run that it is; else None.

    Raises `UserError` for a run without a checkpoint.
    """
    folder = Path(target)
    if (folder / "state.json").is_file() and not (folder / "config.json").is_file():
        return folder
    if not (folder / "checkpoints").is_dir():
        return None
    steps = {
        int(match[1]): path
        for path in (folder / "checkpoints").iterdir()
        if (match := _STEP.fullmatch(path.name)) and (path / "state.json").is_file()
    }
    if not steps:
        raise UserError(f"--policy {target}: this run has no checkpoint yet; train it further")
    return steps[max(steps)]


def read_trained(checkpoint: Path) -> Trained:
    """The team of a checkpoint. Raises `BadFile`."""
    path = checkpoint / "state.json"
    try:
        state = msgspec.json.decode(path.read_bytes(), type=_State)
    except msgspec.DecodeError as error:
        fix = f"give each role its model: role={checkpoint}/MODEL"
        raise BadFile(path, f"does not say what its team is ({error})", fix=fix) from None
    return state.team


class _State(msgspec.Struct):
    team: Trained


def origins(targets: Iterable[str]) -> dict[Path, Trained]:
    """The checkpoints that targets are, or are models of, with their teams. Raises `BadFile`."""
    found = {}
    for target in targets:
        if (checkpoint := checkpoint_of(target)) is not None:
            found[checkpoint] = read_trained(checkpoint)
        elif (parent := checkpoint_of(str(Path(target).parent))) == Path(target).parent:
            with contextlib.suppress(BadFile):  # a model by itself needs no team
                found[parent] = read_trained(parent)
    return found
