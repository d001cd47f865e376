"""Warm start of the demo's tiny model: two lessons of supervised learning, about 5 CPU-minutes.

    OMP_NUM_THREADS=1 python -m mas_train.demo.warm_start --out mas_train/demo/weights

reproduces the committed checkpoint. Data, initial weights and order come from the seed and one
thread is used: the same kind of machine and torch give the same bytes (model.safetensors has
SHA-256 bac51922d95e…). Elsewhere rounding differs; accept final losses within 0.02 of those in
`weights/warm_start.json`.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import mas_envs.math.arith as arith
from mas_envs.console import exit_codes
from mas_train.demo import demonstrations, tiny_model
from mas_train.demo.demonstrations import Demonstration
from mas_train.demo.imitation import Lesson, encode, imitate, recent, save_taught

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["LESSONS", "Lesson", "asdict", "encode", "train", "warm_start"]

LESSONS = (
    Lesson(demonstrations.SKILL, steps=1500, lr=4e-3),
    Lesson(demonstrations.NOISY, steps=300, lr=1e-3),
)


def batches(lesson: Lesson, rng: random.Random) -> Iterator[list[Demonstration]]:
    """Batches of demonstrations without end, the numbers of each problem in a random order."""
    problems, prompts = arith.problems("train"), demonstrations.tiny_prompts()
    while True:
        rows: list[Demonstration] = []
        while len(rows) < lesson.batch:
            meta = rng.choice(problems).meta
            operands = rng.sample(meta["operands"], len(meta["operands"]))
            level = meta["level"]
            rows += demonstrations.conversation(operands, level, lesson.habits, prompts, rng)
        yield rows[: lesson.batch]


def train(lesson: Lesson, model: PreTrainedModel, seed: int, title: str = "lesson") -> list[float]:
    """Cross-entropy on the answers' tokens; returns the loss [nats/token] of every step."""
    rows = batches(lesson, random.Random(seed))
    return imitate(lesson, model, tiny_model.build_tokenizer(), rows, title=title)


def warm_start(out: Path, seed: int = 0, lessons: tuple[Lesson, ...] = LESSONS) -> None:
    """Train from scratch and write the checkpoint folder with `warm_start.json` beside it."""
    import torch

    torch.set_num_threads(1)  # the order of sums, and so the bytes, depends on it
    model = tiny_model.build_model(seed)
    final_loss: list[float] = []
    for number, lesson in enumerate(lessons):
        losses = train(lesson, model, 1000 * seed + number, f"lesson {number + 1}")
        final_loss.append(round(recent(losses), 4))
    save_taught(out, model, tiny_model.build_tokenizer(), seed, lessons, final_loss)


def main() -> None:
    """The command line: `--out FOLDER` and, for another checkpoint, `--seed N`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with exit_codes("warm_start"):
        warm_start(arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
