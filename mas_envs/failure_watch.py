"""Stops a run in which the machinery, not the models, decides what is measured."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from mas_envs.episodes.schema import Episode
from mas_envs.errors import TooManyFailures

FAILURE_WINDOW = 200
FAILURE_SHARE = 0.05


class FailureWatch:
    """Remembers how the last `FAILURE_WINDOW` episodes ended."""

    def __init__(self) -> None:
        self.recent: deque[str] = deque(maxlen=FAILURE_WINDOW)

    def see(self, episode: Episode) -> None:
        """Raises `TooManyFailures` when more than `FAILURE_SHARE` of a window failed."""
        self.recent.append(episode.reason if episode.status == "failed" else "")
        reasons = Counter(reason for reason in self.recent if reason)
        if reasons.total() > FAILURE_SHARE * FAILURE_WINDOW:
            worst, count = reasons.most_common(1)[0]
            raise TooManyFailures(
                f"{reasons.total()} of the last {len(self.recent)} episodes failed; "
                f"most often ({count}): {worst}"
            )

    def see_step(self, episodes: Sequence[Episode]) -> None:
        """`see` them all; raises `TooManyFailures` as well when none of them ended."""
        for episode in episodes:
            self.see(episode)
        if episodes and all(episode.status == "failed" for episode in episodes):
            reason = episodes[-1].reason
            raise TooManyFailures(f"all {len(episodes)} episodes of a step failed: {reason}")
