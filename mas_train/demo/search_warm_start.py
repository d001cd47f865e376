"""Warm start of the small model that searches: lessons of supervised learning, one after the other.

    OMP_NUM_THREADS=1 python -m mas_train.demo.search_warm_start --out mas_train/demo/search_weights

reproduces the committed checkpoint, as `mas_train.demo.warm_start` does the demo's. Every lesson is
saved when it is over; the same command goes on with the next.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mas_envs.console import exit_codes
from mas_train.demo import search_demonstrations, search_model
from mas_train.demo.demonstrations import Demonstration
from mas_train.demo.imitation import Lesson, imitate, recent, save_taught
from mas_train.demo.search_demonstrations import conversations

if TYPE_CHECKING:
    from torch import Tensor

_POOL = 16
"""Batches that are drawn together and sorted by length, so that little of them is padding."""


@dataclass(frozen=True)
class SearchLesson(Lesson):
    """`prompts` is the weight of the loss on the tokens that the agents are shown. A corpus that
    repeats its names teaches copying, the skill that all three need, several times faster than
    the answers alone.
    """

    prompts: float = 0.0


LESSONS = (
    SearchLesson(search_demonstrations.SKILL, steps=1100, lr=5e-3, batch=32, prompts=1.0),
    SearchLesson(search_demonstrations.SKILL, steps=1100, lr=4e-3, batch=48),
    SearchLesson(search_demonstrations.SKILL, steps=1100, lr=3e-3, batch=48),
    SearchLesson(search_demonstrations.NOISY, steps=150, lr=1e-3, batch=48),
)
_KEPT = {"verifier": 0.3, "search": 0.6, "answer": 1.0}
"""The share of each role's rows that is learnt from: to find an answer is harder than a verdict."""


def batches(lesson: Lesson, rng: random.Random) -> Iterator[list[Demonstration]]:
    """Batches of rows of about one length, without end."""
    episodes = conversations(lesson.habits, rng)
    while True:
        rows: list[Demonstration] = []
        while len(rows) < _POOL * lesson.batch:
            rows += [row for role, row in next(episodes) if rng.random() < _KEPT[role]]
        rows.sort(key=lambda row: len(row[0][0].content.split()))
        places = list(range(0, _POOL * lesson.batch, lesson.batch))
        for place in rng.sample(places, len(places)):
            yield rows[place : place + lesson.batch]


def reading_loss(prompts: float, pad: int) -> Any:
    """The loss on the answers plus `prompts` times that on what stands before them."""
    from torch.nn.functional import cross_entropy

    def loss(model: Any, ids: Tensor, labels: Tensor) -> Any:
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        read, answered = ids[:, 1:] != pad, labels[:, 1:] != -100
        # Logits only where they are needed: the vocabulary is most of the model.
        total = cross_entropy(model.lm_head(hidden[answered]), labels[:, 1:][answered])
        if prompts:
            logits = model.lm_head(hidden[read])
            total = total + prompts * cross_entropy(logits, ids[:, 1:][read])
        return total

    return loss


def warm_start(out: Path, seed: int = 0, lessons: tuple[SearchLesson, ...] = LESSONS) -> None:
    """Teach the lessons that `out` has not had yet; writes it after each."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # the order of sums, and so the bytes, depends on it
    tokenizer = search_model.build_tokenizer()
    record = out / "warm_start.json"
    final_loss: list[float] = []
    model = search_model.build_model(seed)
    if record.is_file():
        final_loss = json.loads(record.read_text())["final_loss"]
        model = AutoModelForCausalLM.from_pretrained(out)
    for number in range(len(final_loss), len(lessons)):
        lesson = lessons[number]
        rows = batches(lesson, random.Random(1000 * seed + number))
        loss_of = reading_loss(lesson.prompts, tokenizer.pad_token_id)
        losses = imitate(lesson, model, tokenizer, rows, loss_of, f"lesson {number + 1}")
        final_loss.append(round(recent(losses), 4))
        save_taught(out, model, tokenizer, seed, lessons[: number + 1], final_loss)


def main() -> None:
    """The command line: `--out FOLDER`; `--seed N` for another one, `--lessons N` for a part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lessons", type=int, default=len(LESSONS), help="stop after so many")
    arguments = parser.parse_args()
    with exit_codes("search_warm_start"):
        warm_start(arguments.out, arguments.seed, LESSONS[: arguments.lessons])


if __name__ == "__main__":
    main()
