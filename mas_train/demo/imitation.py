"""Supervised learning on demonstrations: what the warm starts of the small models share."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mas_envs.console import progress
from mas_train.demo import tiny_model
from mas_train.demo.demonstrations import Demonstration

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


@dataclass(frozen=True)
class Lesson:
    """One stretch of training on demonstrators of given habits (a dataclass of numbers).

    `batch` counts rows.
    """

    habits: Any
    steps: int
    lr: float
    batch: int = 96
    warmup: int = 30


Batches = Callable[[Lesson, random.Random], Iterator[list[Demonstration]]]
Loss = Callable[[Any, Any, Any], Any]
"""Of a model on ids [B, L] and labels [B, L] (see `encode`): a scalar, nats per token."""


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


def answer_loss(model: Any, ids: Tensor, labels: Tensor) -> Any:
    """Cross-entropy on the answers' tokens."""
    from torch.nn.functional import cross_entropy

    # Right padding under a causal mask: no real position sees it, so no mask is needed.
    logits = model(input_ids=ids, use_cache=False).logits
    return cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def imitate(
    lesson: Lesson,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    batches: Iterator[list[Demonstration]],
    loss_of: Loss = answer_loss,
    title: str = "lesson",
) -> list[float]:
    """Learn from one batch a step; returns the loss of every step."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
    losses: list[float] = []
    model.train()
    with progress(title, lesson.steps, unit="steps") as bar:
        for step in range(lesson.steps):
            ids, labels = encode(next(batches), tokenizer)
            loss = loss_of(model, ids, labels)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            rate = min(1.0, (step + 1) / lesson.warmup) * max(0.05, 1 - step / lesson.steps)
            optimizer.param_groups[0]["lr"] = lesson.lr * rate
            optimizer.step()
            losses.append(float(loss.detach()))
            bar.advance(1, note=f"loss {recent(losses):.4f}")
    model.train(False)
    return losses


def recent(losses: Sequence[float]) -> float:
    """The mean of the last 50."""
    return sum(losses[-50:]) / len(losses[-50:])


def save_taught(
    out: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    lessons: Sequence[Lesson],
    final_loss: Sequence[float],
) -> None:
    """Write the checkpoint folder `out` with `warm_start.json` in it."""
    import torch

    tiny_model.save(model, out, tokenizer)
    record = {
        "seed": seed,
        "lessons": [asdict(lesson) for lesson in lessons],
        "final_loss": list(final_loss),
        "torch": torch.__version__,
    }
    (out / "warm_start.json").write_text(json.dumps(record, indent=1) + "\n")
