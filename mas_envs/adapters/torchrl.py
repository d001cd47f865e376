"""TorchRL's `PettingZooWrapper` around a workflow, with text in its tensordicts.

>>> from mas_envs.adapters.torchrl import register_torchrl_specs
>>> register_torchrl_specs()
>>> env = PettingZooWrapper(mas_envs.make("math-v0"), use_mask=True)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mas_envs.errors import UserError
from mas_envs.spaces import Conversation, Language


def register_torchrl_specs() -> None:
    """Tell TorchRL what to hold our spaces in; call it once, before the first wrapper.

    Actions and messages become `NonTensor` entries, `turn` a `Categorical`. Raises `UserError`
    when torchrl is not installed.
    """
    try:
        from torchrl.data import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            Categorical,
            Composite,
            NonTensor,
        )
        from torchrl.envs.libs.gym import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            register_gym_spec_conversion,
        )
    except ImportError as error:
        raise UserError(f"{error}; pip install torchrl") from error

    class Text(NonTensor):  # type: ignore[misc,unused-ignore]
        """A string per agent. The wrapper picks each one out of an array, which a plain
        `NonTensor` does not give it (`NotImplementedError: Invalid type of data`).
        """

        def to_numpy(self, val: Any, safe: bool | None = None) -> Any:
            return np.array(val.tolist(), dtype=object)

    def text(space: Language, device: Any = None, **_: Any) -> Any:
        return Text((), device=device, example_data="")

    def conversation(space: Any, device: Any = None, **_: Any) -> Any:
        turn = Categorical(int(space["turn"].n), device=device)
        return Composite(messages=NonTensor((), device=device, example_data=()), turn=turn)

    register_gym_spec_conversion(Language)(text)
    register_gym_spec_conversion(Conversation)(conversation)
