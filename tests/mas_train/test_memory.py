"""A long run does not grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from mas_train.loop import train

PAGE = 4096


@pytest.mark.slow
def test_sixty_steps_do_not_grow_the_process(config):
    """After 20 steps of warm-up, 40 more; checkpoints and evaluations among them."""
    resident = []

    def measure(metrics):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        resident.append(pages * PAGE / 2**20)

    if not Path("/proc/self/statm").exists():
        pytest.skip("reads the resident size from /proc")
    train(
        config("train.steps=60", "train.checkpoint_every=10", "train.eval_every=10"), watch=measure
    )
    early, late = sorted(resident[20:30])[5], sorted(resident[-10:])[5]
    assert late - early < 8, f"{early:.0f} → {late:.0f} MB"
