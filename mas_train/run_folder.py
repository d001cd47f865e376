"""The folder of a run: config.yaml, metrics.jsonl, episodes/, checkpoints/, tensorboard/."""

from __future__ import annotations

from collections.abc import Mapping

from mas_envs.errors import BadFile, UserError
from mas_envs.files import lock_folder, whole_file
from mas_train import checkpoint
from mas_train.config import Config


class RunFolder:
    """`run.dir/run.name`. A new run refuses a folder in use; resuming needs one.

    Entered, it belongs to this process alone and holds the configuration: do so when nothing is
    left that could refuse to start. Raises `UserError` while another process trains there.
    """

    def __init__(self, config: Config, resume: bool) -> None:
        self.config, self.path = config, config.folder
        self.episodes = self.path / "episodes"
        self.checkpoints = self.path / "checkpoints"
        file = self.path / "config.yaml"
        if resume:
            if not file.is_file():
                raise BadFile(file, "no such file", fix="resume the folder of an earlier run")
        elif file.exists():
            raise UserError(
                f"{self.path} already holds a run; resume it (mas-train resume {self.path}), "
                "or choose another run.name"
            )

    def __enter__(self) -> RunFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = lock_folder(self.path)
        with whole_file(self.path / "config.yaml") as file:
            file.write_text(self.config.to_yaml(), encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def restore(self, models: Mapping[str, checkpoint.Saved]) -> tuple[int, tuple[int, int]]:
        """Load the newest checkpoint, if any; (finished steps, position in the episodes)."""
        found = checkpoint.existing(self.checkpoints)
        if not found:
            return 0, (0, 0)
        state = checkpoint.restore(found[-1], models)
        shard, offset = state["episodes"]
        return int(state["step"]), (int(shard), int(offset))

    def save(
        self, step: int, models: Mapping[str, checkpoint.Saved], position: tuple[int, int]
    ) -> None:
        """Write the checkpoint after `step` finished steps, unless it is there already."""
        found = checkpoint.existing(self.checkpoints)
        if found and checkpoint.read_state(found[-1])["step"] == step:
            return
        keep = self.config.train.keep_checkpoints
        checkpoint.save(self.checkpoints, step, models, {"episodes": list(position)}, keep)
