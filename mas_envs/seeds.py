"""The seeds of a run, from its own seed, the training step, the task, the sample and the turn."""

from __future__ import annotations

import numpy as np


def environment_seed(seed: int, step: int, task_id: str) -> int:
    """The environment's seed: the same for all members of a group, which differ in sampling."""
    return int(_sequence(seed, step, int(task_id, 16)).generate_state(1)[0])


def turn_seed(seed: int, step: int, task_id: str, sample: int, turn: int) -> int:
    """The sampling seed of one turn. 63 bits: what every engine and JSON reader can hold."""
    sequence = _sequence(seed, step, int(task_id, 16), sample, turn)
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


def _sequence(*numbers: int) -> np.random.SeedSequence:
    """`SeedSequence(numbers)` in two thirds of the time: numpy is slow to cut them into words."""
    words = []
    for number in numbers:
        words.append(number & 0xFFFFFFFF)
        while number := number >> 32:
            words.append(number & 0xFFFFFFFF)
    return np.random.SeedSequence(np.array(words, np.uint32))
