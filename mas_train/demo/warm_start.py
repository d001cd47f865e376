"""Warm start of the demo's tiny model: two lessons of supervised learning, about 5 CPU-minutes.

    OMP_NUM_THREADS=1 python -m mas_train.demo.warm_start --out mas_train/demo/weights

reproduces the committed checkpoint. Data, initial weights and order come from the seed and one
thread is used: the same kind of machine and torch give the same bytes (model.safetensors has
SHA-256 bac51922d95e…). Elsewhere rounding differs; accept final losses within 0.02 of those in
`weights/warm_start.json`.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mas_envs.math.arith as arith
from mas_envs.console import exit_codes, progress
from mas_envs.prompts import PromptSet
from mas_train.demo import demonstrations, tiny_model
from mas_train.demo.demonstrations import Demonstration, Habits

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


@dataclass(frozen=True)
class Lesson:
    """One stretch of training on demonstrators of given habits; `batch` counts rows."""

    habits: Habits
    steps: int
    lr: float
    batch: int = 96
    warmup: int = 30


LESSONS = (
    Lesson(demonstrations.SKILL, steps=1500, lr=4e-3),
    Lesson(demonstrations.NOISY, steps=300, lr=1e-3),
)


def encode(rows: list[Demonstration], tokenizer: PreTrainedTokenizerFast) -> tuple[Tensor, Tensor]:
    """Rows as ids [B, L], right-padded, and labels [B, L] that are -100 outside the answers."""
    import torch

    chats = [[{"role": one.role, "content": one.content} for one in shown] for shown, _ in rows]
    texts = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
    prompts = tokenizer(texts)["input_ids"]
    answers = tokenizer([answer + tiny_model.END for _, answer in rows])["input_ids"]
    encoded = list(zip(prompts, answers, strict=True))
    length = max(len(prompt) + len(answer) for prompt, answer in encoded)
    ids = torch.full((len(rows), length), tokenizer.pad_token_id)
    labels = torch.full((len(rows), length), -100)
    for row, (prompt, answer) in enumerate(encoded):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : end] = torch.tensor(answer)
    return ids, labels


def draw_rows(
    lesson: Lesson, problems: list[arith.Problem], prompts: PromptSet, rng: random.Random
) -> list[Demonstration]:
    """One batch of demonstrations, the numbers of each problem in a random order."""
    rows: list[Demonstration] = []
    while len(rows) < lesson.batch:
        meta = rng.choice(problems).meta
        operands = rng.sample(meta["operands"], len(meta["operands"]))
        rows += demonstrations.conversation(operands, meta["level"], lesson.habits, prompts, rng)
    return rows[: lesson.batch]


def train(lesson: Lesson, model: PreTrainedModel, seed: int, title: str = "lesson") -> list[float]:
    """Cross-entropy on the answers' tokens; returns the loss [nats/token] of every step."""
    import torch
    from torch.nn.functional import cross_entropy

    tokenizer, rng = tiny_model.build_tokenizer(), random.Random(seed)
    problems, prompts = arith.problems("train"), demonstrations.tiny_prompts()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
    losses: list[float] = []
    model.train()
    with progress(title, lesson.steps, unit="steps") as bar:
        for step in range(lesson.steps):
            ids, labels = encode(draw_rows(lesson, problems, prompts, rng), tokenizer)
            # Right padding under a causal mask: no real position sees it, so no mask is needed.
            logits = model(input_ids=ids, use_cache=False).logits
            loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            rate = min(1.0, (step + 1) / lesson.warmup) * max(0.05, 1 - step / lesson.steps)
            optimizer.param_groups[0]["lr"] = lesson.lr * rate
            optimizer.step()
            losses.append(float(loss.detach()))
            bar.advance(1, note=f"loss {sum(losses[-50:]) / len(losses[-50:]):.4f}")
    model.train(False)
    return losses


def warm_start(out: Path, seed: int = 0, lessons: tuple[Lesson, ...] = LESSONS) -> None:
    """Train from scratch and write the checkpoint folder with `warm_start.json` beside it."""
    import torch

    torch.set_num_threads(1)  # the order of sums, and so the bytes, depends on it
    model = tiny_model.build_model(seed)
    final_loss: list[float] = []
    for number, lesson in enumerate(lessons):
        losses = train(lesson, model, 1000 * seed + number, f"lesson {number + 1}")
        final_loss.append(round(sum(losses[-50:]) / len(losses[-50:]), 4))
    tiny_model.save(model, out)
    record = {
        "seed": seed,
        "lessons": [asdict(lesson) for lesson in lessons],
        "final_loss": final_loss,
        "torch": torch.__version__,
    }
    (out / "warm_start.json").write_text(json.dumps(record, indent=1) + "\n")


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
