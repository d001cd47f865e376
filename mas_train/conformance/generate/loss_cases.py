"""Golden cases of losses and KL penalties: values, and gradients derived by hand.

With r = pi/pi_old of a token, d r / d log pi = r; a bound that decides the loss leaves 0.
"""

from __future__ import annotations

import math
import random
from typing import Any

LENGTHS = [3, 1, 5, 2]
ROW = [i for i, length in enumerate(LENGTHS) for _ in range(length)]
ADVANTAGES = [1.0, -0.7, -1.3, 0.45]
SOURCES = {
    "ppo": "PPO, arXiv 1707.06347; separate bounds: DAPO, arXiv 2503.14476; dual clip: "
    "arXiv 1912.09729",
    "gspo": "GSPO, arXiv 2507.18071; at every token the loss of its row",
    "cispo": "CISPO, arXiv 2506.13585; -sg(clip(r, 1 - low, 1 + high)) A log pi",
    "reinforce": "-A log pi",
    "kl": "Schulman, Approximating KL divergence (2020); l = log pi - log reference",
    "value_loss": "(V - R)^2 / 2, clipped as in the reference implementation of PPO",
}


def bounded(
    ratio: float, advantage: float, low: float, high: float, dual: float | None
) -> tuple[float, float]:
    """PPO's loss of a ratio, case by case, and its derivative with respect to log ratio."""
    if advantage >= 0 and ratio > 1 + high:
        return -(1 + high) * advantage, 0.0
    if advantage < 0 and ratio < 1 - low:
        return -(1 - low) * advantage, 0.0
    if advantage < 0 and dual is not None and ratio > dual:
        return -dual * advantage, 0.0
    return -ratio * advantage, -ratio * advantage


def ppo(now: list[float], old: list[float], clip_low: float, clip_high: float,
        dual_clip: float | None) -> list[tuple[float, float]]:  # fmt: skip
    """Loss and derivative of each token."""
    return [bounded(math.exp(a - b), ADVANTAGES[row], clip_low, clip_high, dual_clip)
            for a, b, row in zip(now, old, ROW, strict=True)]  # fmt: skip


def gspo(now: list[float], old: list[float], clip_low: float, clip_high: float,
         dual_clip: float | None = None) -> list[tuple[float, float]]:  # fmt: skip
    """Σ over a row's T tokens of the turn's loss: each token's derivative is T times 1/T of it."""
    result: list[tuple[float, float]] = []
    for row, length in enumerate(LENGTHS):
        logs = [a - b for a, b, where in zip(now, old, ROW, strict=True) if where == row]
        turn = bounded(math.exp(math.fsum(logs) / length), ADVANTAGES[row], clip_low, clip_high,
                       dual_clip)  # fmt: skip
        result += [turn] * length
    return result


def cispo(
    now: list[float], old: list[float], clip_low: float, clip_high: float
) -> list[tuple[float, float]]:
    """The weight is a constant."""
    result = []
    for a, b, row in zip(now, old, ROW, strict=True):
        weight = max(1 - clip_low, min(math.exp(a - b), 1 + clip_high))
        result.append((-weight * ADVANTAGES[row] * a, -weight * ADVANTAGES[row]))
    return result


def reinforce(now: list[float], old: list[float]) -> list[tuple[float, float]]:
    """No ratio."""
    return [(-ADVANTAGES[row] * a, -ADVANTAGES[row]) for a, row in zip(now, ROW, strict=True)]


FORMULAS: dict[str, Any] = {"ppo": ppo, "gspo": gspo, "cispo": cispo, "reinforce": reinforce}
WIDE = [0.05, 0.4, -0.35, 1.5, -0.02, 1.3, -0.6, 0.15, 0.9, -0.9, 0.7]
TURNS = [0.5, 0.4, 0.1, -0.9, 0.6, -0.2, 0.1, 0.3, 0.9, -0.9, 0.7]
NARROW = [1e-4, 2e-4, -4e-4, 1e-3, 3e-4, -2e-4, 1e-4, -5e-4, 2e-4, 6e-4, 8e-4]


def losses() -> list[dict[str, Any]]:
    """Cases of kind `loss`."""
    draw = random.Random(3)
    old = [-round(draw.uniform(0.05, 3.0), 4) for _ in ROW]
    usual = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None}
    plans: list[tuple[str, str, list[float], dict[str, Any]]] = [
        ("ppo", "on-policy", [0.0] * 11, usual),
        ("ppo", "every branch of the clip", WIDE, usual),
        ("ppo", "clip-higher", WIDE, {**usual, "clip_high": 0.28}),
        ("ppo", "dual clip", WIDE, {**usual, "dual_clip": 3.0}),
        ("gspo", "on-policy", [0.0] * 11, {"clip_low": 3e-4, "clip_high": 4e-4}),
        ("gspo", "the published bounds", NARROW, {"clip_low": 3e-4, "clip_high": 4e-4}),
        ("gspo", "wide bounds", TURNS, {"clip_low": 0.2, "clip_high": 0.3}),
        ("cispo", "on-policy", [0.0] * 11, {"clip_low": 1.0, "clip_high": 2.0}),
        ("cispo", "no lower bound", WIDE, {"clip_low": 1.0, "clip_high": 2.0}),
        ("cispo", "two bounds", WIDE, {"clip_low": 0.3, "clip_high": 0.5}),
        ("reinforce", "old log-probs play no part", WIDE, {}),
    ]
    result = []
    for name, title, shifts, options in plans:
        now = [round(b + shift, 6) for b, shift in zip(old, shifts, strict=True)]
        pairs = FORMULAS[name](now, old, **options)
        for aggregation, each in (
            ("token mean", [1 / len(ROW)] * 4),
            ("sequence mean", [1 / (4 * length) for length in LENGTHS]),
        ):
            weights = [each[row] for row in ROW]
            result.append({
                "name": name, "title": f"{title}, {aggregation}", "source": SOURCES[name],
                "inputs": {"log_probs": now, "old_log_probs": old,
                           "advantages": [ADVANTAGES[row] for row in ROW], "row": ROW},
                "options": options, "token_weights": weights, "detached": name == "cispo",
                "expected": {"loss": [value for value, _ in pairs],
                             "gradient": [w * slope for w, (_, slope) in
                                          zip(weights, pairs, strict=True)]},
            })  # fmt: skip
    return result


PENALTIES: dict[str, Any] = {
    "k1": lambda x: (x, 1.0),
    "k2": lambda x: (x * x / 2, x),
    "k3": lambda x: (math.exp(-x) - 1 + x, 1 - math.exp(-x)),
}


def kl() -> dict[str, list[dict[str, Any]]]:
    """Cases of kinds `kl` and `kl_reward`."""
    draw = random.Random(5)
    reference = [-round(draw.uniform(0.05, 4.0), 4) for _ in ROW]
    per_token, per_row = [], []
    for name, formula in PENALTIES.items():
        for title, shifts in (("near the reference", NARROW), ("far from it", WIDE)):
            now = [round(b + shift, 6) for b, shift in zip(reference, shifts, strict=True)]
            pairs = [formula(a - b) for a, b in zip(now, reference, strict=True)]
            common = {"name": name, "title": title, "source": SOURCES["kl"], "options": {}}
            inputs: dict[str, Any] = {"log_probs": now, "reference_log_probs": reference}
            weights = [1 / len(ROW)] * len(ROW)
            expected = {
                "penalty": [value for value, _ in pairs],
                "gradient": [weights[0] * slope for _, slope in pairs],
            }
            per_token.append(
                {**common, "inputs": inputs, "token_weights": weights, "expected": expected}
            )
            sums = [
                math.fsum(value for (value, _), at in zip(pairs, ROW, strict=True) if at == row)
                for row in range(len(LENGTHS))
            ]
            inputs = {**inputs, "row": ROW}
            per_row.append({**common, "inputs": inputs, "expected": {"penalty": sums}})
    return {"kl": per_token, "kl_reward": per_row}


def value_loss() -> list[dict[str, Any]]:
    """Cases of kind `value_loss`: V near and far from the old one, on both sides of the return."""
    old = [0.1, -0.4, 0.8, 0.0, 1.2, -1.0]
    values = [0.15, 0.3, 0.1, -0.6, 1.9, -1.05]
    returns = [1.0, 1.0, 1.0, 0.0, 0.0, -2.0]
    result = []
    for title, clip in (("clipped", 0.2), ("not clipped", None)):
        loss, gradient = [], []
        for v, before, target in zip(values, old, returns, strict=True):
            near = v if clip is None else max(before - clip, min(v, before + clip))
            held = (near - target) ** 2 > (v - target) ** 2
            loss.append(((near if held else v) - target) ** 2 / 2)
            gradient.append(0.0 if held else (v - target) / len(values))
        result.append({"name": "value_loss", "title": title, "source": SOURCES["value_loss"],
                       "inputs": {"values": values, "old_values": old, "returns": returns},
                       "options": {"clip": clip}, "token_weights": [1 / len(values)] * len(values),
                       "expected": {"loss": loss, "gradient": gradient}})  # fmt: skip
    return result


def cases() -> dict[str, list[dict[str, Any]]]:
    """All cases of these kinds."""
    return {"loss": losses(), **kl(), "value_loss": value_loss()}
