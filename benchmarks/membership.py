"""Whether stored episodes are a run's own: played with its settings, each sample finished once.

Every episode of a run carries a hash of the run's settings (provenance "run"), so that the files of
two runs in one folder are told apart. Episodes without one, made by other code, are taken as the
run's where their place in it is free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.samples import Samples
from mas_envs.episodes.schema import Episode
from mas_envs.errors import BadFile

RUN = "run"


def run_id(settings: msgspec.Struct) -> str:
    """16 hex digits that tell a run's settings from others."""
    content = msgspec.json.encode(msgspec.to_builtins(settings), order="sorted")
    return hashlib.sha256(content).hexdigest()[:16]


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], at: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, value before, value now) of all that differs."""
    for key in sorted(before.keys() | now.keys()):
        old, new, name = before.get(key), now.get(key), f"{at}{key}"
        if isinstance(old, dict) and isinstance(new, dict):
            yield from differences(old, new, f"{name}.")
        elif old != new:
            yield name, old, new


class Membership:
    """Checks the episodes of one run, one after the other."""

    def __init__(self, settings: Any) -> None:
        """`settings`: `run_folder.Settings`."""
        self.settings, self.run = settings, run_id(settings)
        self._finished = Samples()

    def check(self, shard: Path, episode: Episode) -> None:
        """Raises `BadFile` for an episode of another run, and for a second finished one of a sample
        (forks are no samples).
        """
        if "fork" in episode.provenance:
            return
        why = self._foreign(episode)
        if not why and episode.status == "done":
            if (episode.task, episode.sample) in self._finished:
                why = "recorded twice"
            self._finished.add(episode.task, episode.sample)
        if why:
            raise BadFile(shard, f"task {episode.task!r}, sample {episode.sample}: {why}",
                          fix="do not mix two runs in one folder; "
                          "take the files of the other one out")  # fmt: skip

    def _foreign(self, episode: Episode) -> str:
        """Why the episode is not of this run; "" if it is."""
        settings = self.settings
        if episode.sample >= settings.k:
            return f"the run has k = {settings.k} samples"
        if episode.group >= settings.questions:
            return f"question {episode.group + 1} of a run that has {settings.questions}"
        if episode.provenance.get(RUN, self.run) == self.run:
            return ""
        ours = {"env": settings.env, "prompts": settings.prompts}
        theirs = {"env": episode.env, "prompts": episode.prompts}
        for turn in episode.turns[:1]:
            ours["sampling"] = msgspec.to_builtins(settings.sampling)
            theirs["sampling"] = msgspec.to_builtins(turn.sampling)
        for name, old, new in differences(theirs, ours):
            return f"of another run: it has {name} = {old!r:.80}, run.json says {new!r:.80}"
        return "of another run: with another suite, policy, k or seed than run.json says"
