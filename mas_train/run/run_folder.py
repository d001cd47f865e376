"""The folder of a run: config.yaml, metrics.jsonl, episodes/, checkpoints/, tensorboard/."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mas_envs.errors import BadFile, UserError
from mas_envs.files import lock_folder, whole_file
from mas_train.config import Config
from mas_train.run import checkpoint


@dataclass
class RunState:
    """What the next step depends on besides weights, configuration and step number.

    `drawn` prompts have been taken from the training tasks; `baselines` are the running mean
    rewards by role of estimator rae. Seeds derive from the step: no generator has a state.
    """

    drawn: int = 0
    baselines: dict[str, float] = field(default_factory=dict)


class RunFolder:
    """`run.dir/run.name`. A new run refuses a folder in use; resuming needs one.

    `checkpoint` is the newest one (or None), `done` the steps it has finished, `position` where
    it stands in the stored episodes, `state` its `RunState`. Entered, the folder belongs to this
    process alone and holds the configuration: do so when nothing is left that could refuse to
    start. Raises `UserError` while another process trains there.
    """

    def __init__(self, config: Config, resume: bool) -> None:
        self.config, self.path = config, config.folder
        self.episodes = self.path / "episodes"
        self.checkpoints = self.path / "checkpoints"
        file = self.path / "config.yaml"
        if resume and not file.is_file():
            raise BadFile(file, "no such file", fix="resume the folder of an earlier run")
        if not resume:
            check_unused(self.path)
        self.checkpoint = checkpoint.newest(self.checkpoints)
        self.done, self.position, self.state = 0, (0, 0), RunState()
        if self.checkpoint is not None:
            checkpoint.verify(self.checkpoint)
            state = checkpoint.read_state(self.checkpoint)
            self.done, (shard, byte) = state["step"], state["episodes"]
            self.position = (shard, byte)
            drawn = state.get("drawn", self.done * config.rollout.prompts_per_step)
            self.state = RunState(drawn, state.get("baselines", {}))
        if self.done > config.train.steps:
            raise UserError(
                f"train.steps is {config.train.steps}, but {self.path} has {self.done} steps done"
            )

    def __enter__(self) -> RunFolder:
        with disk_errors(self.path, "make room there, or choose another run.dir"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(self.path)
            self._keep_config()
        return self

    def _keep_config(self) -> None:
        file, text = self.path / "config.yaml", self.config.to_yaml()
        earlier = file.read_text(encoding="utf-8") if file.exists() else text
        if earlier != text and self.done < self.config.train.steps:
            # What the steps so far were made with must not be lost.
            kept = self.path / f"config.until-{self.done:06d}.yaml"
            kept.write_text(earlier, encoding="utf-8")
        if self.done < self.config.train.steps:
            with whole_file(file) as whole:
                whole.write_text(text, encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    @property
    def saved(self) -> int:
        """The steps in the newest checkpoint."""
        found = checkpoint.newest(self.checkpoints)
        return 0 if found is None else checkpoint.step_of(found)

    @property
    def how_to_go_on(self) -> str:
        """What to tell whoever sees the run end early."""
        return (
            f"{self.saved} of {self.config.train.steps} steps are saved; go on with: "
            f"mas-train resume {self.path}"
        )

    def save(
        self,
        step: int,
        models: Mapping[str, checkpoint.Saved],
        run: RunState,
        position: tuple[int, int],
    ) -> None:
        """Write the checkpoint after `step` finished steps, unless that is there or is no step."""
        if step in (0, self.saved):
            return
        state = {"episodes": list(position), "team": team_record(self.config), **asdict(run)}
        checkpoint.save(self.checkpoints, step, models, state, self.config.train.keep_checkpoints)


def check_unused(folder: Path) -> None:
    """Raises `UserError` where a run is already."""
    if (folder / "config.yaml").exists():
        raise UserError(
            f"{folder} already holds a run; resume it (mas-train resume {folder}), or choose "
            "another run.name"
        )


def team_record(config: Config) -> dict[str, Any]:
    """Who plays what, as whoever measures a checkpoint needs to know."""
    frozen = {name: m.path for name, m in config.models.items() if m.optimizer is None}
    return {
        "env": config.env.model_dump(),
        "agents": {role: agent.model for role, agent in config.agents.items()},
        "frozen": frozen,
        "max_tokens": config.rollout.max_tokens,
    }


@contextlib.contextmanager
def disk_errors(folder: Path, fix: str) -> Iterator[None]:
    """One `UserError` for whatever a full or unwritable disk makes of writing below `folder`.

    Python does not say which file was being written, SQLite and safetensors have errors of their
    own, and closing the files fails again.
    """
    try:
        yield
    except OSError as error:
        place = Path(error.filename or folder)
        elsewhere = folder not in (place, *place.parents)
        if elsewhere or error.errno == errno.EPIPE:
            raise
        reason = error.strerror or error
        raise UserError(f"{place}: cannot be written: {reason}; {fix}") from error
    except sqlite3.Error as error:
        raise UserError(f"{folder}: cannot be written: {error}; {fix}") from error
