"""Golden cases of importance weights between sampler and learner."""

from __future__ import annotations

import math
import random
from typing import Any

from mas_train.conformance.generate.loss_cases import LENGTHS, ROW

LEVELS = {"tis": "token", "mis": "token", "seq_tis": "product", "seq_mis": "product",
          "geo_mis": "geometric mean"}  # fmt: skip
SOURCE = (
    "Liu et al., When Speed Kills Stability (2025); token TIS: Yao et al. (2025); w = pi_old/mu by "
    "{level}, log w within ±20; {rule}"
)


def weights(
    name: str, old: list[float], sampler: list[float], cap: float, floor: float
) -> list[float]:
    """One weight per token, row by row."""
    result = []
    for row, length in enumerate(LENGTHS):
        logs = [a - b for a, b, where in zip(old, sampler, ROW, strict=True) if where == row]
        if LEVELS[name] != "token":
            total = math.fsum(logs)
            logs = [total if LEVELS[name] == "product" else total / length] * length
        for log in logs:
            w = math.exp(max(-20.0, min(20.0, log)))
            masked = name.endswith("mis")
            result.append((w if floor <= w <= cap else 0.0) if masked else min(w, cap))
    return result


def cases() -> dict[str, list[dict[str, Any]]]:
    """All cases of kind `correction`."""
    draw = random.Random(11)
    old = [-round(draw.uniform(0.05, 3.0), 4) for _ in ROW]
    gaps = {
        "the same policy": [0.0] * 11,
        "a small mismatch": [0.01, -0.02, 0.015, 0.03, -0.01, 0.0, 0.02, -0.04, 0.01, 0.05, -0.02],
        "every bound": [0.3, 0.5, 0.2, -0.9, -0.8, 0.75, -0.1, 0.2, 0.15, -0.4, -0.5],
        "far beyond ±20": [12.0, 15.0, -3.0, -45.0, 30.0, -28.0, 1.0, 0.0, -5.0, 0.1, 0.2],
    }
    result = []
    for name, level in LEVELS.items():
        masked = name.endswith("mis")
        rule = "w where floor <= w <= cap, else 0" if masked else "min(w, cap)"
        for title, shifts in gaps.items():
            sampler = [round(a - shift, 6) for a, shift in zip(old, shifts, strict=True)]
            options = {"cap": 2.0, "floor": 0.5} if masked else {"cap": 2.0}
            result.append({
                "name": name, "title": title, "source": SOURCE.format(level=level, rule=rule),
                "inputs": {"old_log_probs": old, "sampler_log_probs": sampler, "row": ROW},
                "options": options,
                "expected": {"weights": weights(name, old, sampler, 2.0, 0.5)},
            })  # fmt: skip
    return {"correction": result}
