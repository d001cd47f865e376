"""For authors of environments: `check("my_module:MyEnv")`, or `mas-envs check my_module:MyEnv`."""

from mas_envs.testing.checks import check
from mas_envs.testing.faults import PURE
from mas_envs.testing.replays import check_replay, env_of, replay_all

__all__ = ["PURE", "check", "check_replay", "env_of", "replay_all"]
