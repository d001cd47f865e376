"""Golden cases of aggregation: token weights, micro-batches, and the penalty of long turns."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

MEANINGS = {
    "token_mean": "sum over all tokens / N (DAPO, arXiv 2503.14476)",
    "seq_mean_token_mean": "mean over rows of the row's mean (GRPO, arXiv 2402.03300)",
    "seq_mean_token_sum": "mean over rows of the row's sum",
    "constant": "sum over all tokens / (B L) (Dr. GRPO, arXiv 2503.20783)",
}
LIMIT = 16


def weight(aggregation: str, lengths: list[int], row: int) -> Fraction:
    """What the loss of one token of a row is multiplied with."""
    if aggregation == "token_mean":
        return Fraction(1, sum(lengths))
    if aggregation == "seq_mean_token_mean":
        return Fraction(1, len(lengths) * lengths[row])
    if aggregation == "seq_mean_token_sum":
        return Fraction(1, len(lengths))
    return Fraction(1, len(lengths) * LIMIT)


def cases() -> dict[str, list[dict[str, Any]]]:
    """All cases of kinds `weights`, `total` and `overlong`."""
    return {"weights": weights(), "total": totals(), "overlong": overlong()}


def weights() -> list[dict[str, Any]]:
    """Weights per row, and with the loss weight of an agent, which no denominator sees."""
    result = []
    for name, meaning in MEANINGS.items():
        options = {"max_tokens": LIMIT} if name == "constant" else {}
        for title, lengths, factors in (
            ("rows of one length", [4, 4, 4], None),
            ("rows of 1 to 16 tokens", [1, 16, 3, 7], None),
            ("loss weights of agents", [2, 6, 3, 5], [1.0, 0.5, 0.0, 2.0]),
        ):
            found = [float(weight(name, lengths, i)) for i in range(len(lengths))]
            inputs: dict[str, Any] = {"lengths": lengths}
            if factors:
                found = [w * factor for w, factor in zip(found, factors, strict=True)]
                inputs["row_weights"] = factors
            result.append({"name": name, "title": title, "source": meaning, "inputs": inputs,
                           "options": options, "expected": {"weights": found}})  # fmt: skip
    return result


def totals() -> list[dict[str, Any]]:
    """The loss of one optimizer batch of seven rows, however it is cut into micro-batches."""
    draw, lengths = random.Random(13), [1, 16, 3, 7, 2, 11, 5]
    row = [i for i, length in enumerate(lengths) for _ in range(length)]
    losses = [round(draw.gauss(0.0, 1.0), 4) for _ in row]
    cuts = {
        "one micro-batch": [[0, 1, 2, 3, 4, 5, 6]],
        "one row at a time": [[i] for i in range(7)],
        "seven rows on four workers, none copied": [[0, 4], [1, 5], [2, 6], [3]],
        "the long rows together": [[1, 5], [0, 2, 4], [3, 6]],
    }
    result = []
    for name, meaning in MEANINGS.items():
        total = sum(weight(name, lengths, i) * Fraction(str(loss))
                    for i, loss in zip(row, losses, strict=True))  # fmt: skip
        options = {"max_tokens": LIMIT} if name == "constant" else {}
        for title, parts in cuts.items():
            result.append({
                "name": name, "title": title, "source": meaning, "options": options,
                "inputs": {"losses": losses, "row": row, "micro_batches": parts},
                "expected": {"loss": float(total)},
            })  # fmt: skip
    return result


def overlong() -> list[dict[str, Any]]:
    """DAPO's published setting: a limit of 20480 tokens with a buffer of 4096."""
    lengths, result = [10, 16384, 16385, 18432, 20479, 20480], []
    for penalty in (1.0, 0.5):
        found = []
        for length in lengths:
            over = Fraction(length - (20480 - 4096), 4096)
            found.append(0.0 if over <= 0 else float(-over * Fraction(str(penalty))))
        result.append({"name": "overlong", "title": f"a penalty of {penalty}",
                       "source": "soft overlong punishment, DAPO, arXiv 2503.14476",
                       "inputs": {"lengths": lengths},
                       "options": {"max_tokens": 20480, "buffer": 4096, "penalty": penalty},
                       "expected": {"penalty": found}})  # fmt: skip
    return result
