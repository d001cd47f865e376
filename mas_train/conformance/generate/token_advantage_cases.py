"""Golden cases of `gae` (per token) and `counterfactual` (alternatives of one decision)."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from mas_train.conformance.generate.advantage_formulas import mean

GAE = "Schulman et al., arXiv 1506.02438; the reward at a row's last token, nothing after it"
C3 = "C3, arXiv 2603.06859: R - mean of the other alternatives of the decision"


def gae(
    rewards: list[Any], values: list[float], lengths: list[int], gamma: float, lam: float
) -> tuple[list[float], list[float]]:
    """The sum Σ_k (gamma lam)^k delta_(t+k) written out for every token."""
    advantages: list[float] = []
    start, g, decay = 0, Fraction(str(gamma)), Fraction(str(gamma)) * Fraction(str(lam))
    for reward, length in zip(rewards, lengths, strict=True):
        v = [Fraction(value) for value in values[start : start + length]] + [Fraction(0)]
        start += length
        if reward is None:
            advantages += [0.0] * length
            continue
        r = [Fraction(0)] * (length - 1) + [Fraction(reward)]
        delta = [r[t] + g * v[t + 1] - v[t] for t in range(length)]
        advantages += [float(sum(decay ** (k - t) * delta[k] for k in range(t, length)))
                       for t in range(length)]  # fmt: skip
    return advantages, [a + v for a, v in zip(advantages, values, strict=True)]


def counterfactual(rewards: list[Any], decision: list[int]) -> list[float]:
    """One loop over alternatives."""
    result = []
    for i, reward in enumerate(rewards):
        others = [other for j, other in enumerate(rewards)
                  if j != i and decision[j] == decision[i] and other is not None]  # fmt: skip
        alone = reward is None or not others
        result.append(0.0 if alone else float(Fraction(reward) - mean(others)))
    return result


def cases() -> dict[str, list[dict[str, Any]]]:
    """All cases of kinds `gae` and `counterfactual`."""
    draw = random.Random(7)
    lengths = [3, 1, 5, 2]
    values = [round(draw.uniform(-1, 1), 3) for _ in range(sum(lengths))]
    per_token = []
    for title, gamma, lam, rewards in (
        ("no discount: R - V", 1.0, 1.0, [1.0, 0.0, 0.9, -0.1]),
        ("gamma 0.99, lambda 0.95", 0.99, 0.95, [1.0, 0.0, 0.9, -0.1]),
        ("lambda 0: one step", 1.0, 0.0, [1.0, 0.0, 0.9, -0.1]),
        ("a row without a reward", 0.9, 0.5, [1.0, None, 0.0, 0.0]),
    ):
        advantages, returns = gae(rewards, values, lengths, gamma, lam)
        inputs: dict[str, Any] = {"rewards": rewards, "values": values, "lengths": lengths}
        if None in rewards:
            inputs["known"] = [reward is not None for reward in rewards]
        per_token.append({"name": "ppo", "title": title, "source": GAE, "inputs": inputs,
                          "options": {"gamma": gamma, "lam": lam},
                          "expected": {"advantages": advantages, "returns": returns}})  # fmt: skip
    alternatives = []
    for title, rewards, decision in (
        ("three decisions of 4, 2 and 1 alternatives", [1.0, 0.0, 0.0, 1.0, 0.3, 0.9, 1.0],
         [0, 0, 0, 0, 1, 1, 2]),
        ("decisions interleaved, one alternative failed", [1.0, 0.5, None, 0.0, 0.25, 0.0],
         [4, 9, 4, 4, 9, 4]),
        ("all alternatives alike", [0.9, 0.9, 0.9], [0, 0, 0]),
    ):  # fmt: skip
        inputs = {"rewards": rewards, "decision": decision}
        if None in rewards:
            inputs["known"] = [reward is not None for reward in rewards]
        expected = {"advantages": counterfactual(rewards, decision)}
        alternatives.append({"name": "counterfactual", "title": title, "source": C3,
                             "inputs": inputs, "options": {}, "expected": expected})  # fmt: skip
    return {"gae": per_token, "counterfactual": alternatives}
