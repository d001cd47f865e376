"""What two runs are compared by."""

from __future__ import annotations

import msgspec

import mas_envs


def weights(folder):
    """All trained weights of the newest checkpoint, as {model/name: array}."""
    from safetensors.numpy import load_file

    newest = sorted((folder / "checkpoints").glob("step-*"))[-1]
    return {
        f"{file.parent.name}/{name}": array
        for file in newest.glob("*/model.safetensors")
        for name, array in load_file(file).items()
    }


def timeless(metrics):
    """Metrics without what the clock decides."""
    return [
        {key: value for key, value in row.items() if key not in ("seconds", "tokens_per_second")}
        for row in metrics
    ]


def stored(folder):
    """The stored episodes without what the clock decides."""
    found = []
    for episode in mas_envs.read_episodes(folder / "episodes"):
        events = [msgspec.structs.replace(event, seconds=0.0) for event in episode.events]
        episode = msgspec.structs.replace(episode, events=events, started=0.0, seconds=0.0)
        found.append(msgspec.json.encode(episode, enc_hook=lambda array: array.tolist()))
    return found
