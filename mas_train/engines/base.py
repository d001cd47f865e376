"""What an engine is: a policy whose weights can be replaced and questioned.

Order of use in one training step: requests run through `act` (mas_envs.policies.base), the learner
updates, `load_weights` pushes the result under the learner's step as `version`, and `probe` shows
that the engine now computes what the learner computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mas_envs.episodes.schema import LogProbs
from mas_envs.policies.base import Policy

if TYPE_CHECKING:
    import torch


@dataclass
class Stats:
    """What an engine has done since it was made (or since `stats` was replaced by a new one).

    `tokens` counts sampled tokens, `prompt_tokens` those really computed (equal prompts admitted
    together are computed once), `steps` the decode passes and `row_steps` the rows they carried,
    `seconds` the time inside the model and the sampler.
    """

    requests: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    steps: int = 0
    row_steps: int = 0
    seconds: float = 0.0

    @property
    def occupancy(self) -> float:
        """Mean number of rows in a decode pass."""
        return self.row_steps / self.steps if self.steps else 0.0


@runtime_checkable
class Engine(Policy, Protocol):
    """A `Policy` plus weights. All methods but `act` are synchronous and act at a step boundary."""

    version: int
    stats: Stats

    def load_weights(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        version: int,
    ) -> None:
        """Replace all weights and forget every cached key and value.

        Raises `UserError` on a missing or unknown name or another shape; nothing is changed then.
        """

    def pause(self) -> None:
        """Sample no further token until `resume`; requests keep queueing."""

    def resume(self) -> None:
        """Go on where `pause` stopped."""

    def probe(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> LogProbs:
        """Log-probs [T] of `ids` [T] after `prompt_ids` [P], at temperature 1, teacher-forced.

        They come the way that sampling takes, cached keys and values included, so that whatever is
        stale there shows.
        """

    def sleep(self) -> None:
        """Free what memory it can while nothing is asked of it; whatever comes next wakes it."""

    def close(self) -> None:
        """Free the model; whatever is still being sampled fails with `MachineryError`."""
