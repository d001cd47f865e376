"""Golden cases of `advantages`: what trainers have got wrong, and uneven batches."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

from mas_train.conformance.generate import advantage_formulas as formulas

Row = formulas.Row
SAMPLE = "; sample deviation (ddof 1), 1e-6 added"
SOURCES = {
    "grpo": "GRPO, arXiv 2402.03300, over trajectories" + SAMPLE,
    "drmas": "Dr. MAS, arXiv 2602.08847, agent-wise" + SAMPLE,
    "step_global": "GRPO over turns, agents mixed" + SAMPLE,
    "drmas_mean": "Dr. MAS, arXiv 2602.08847, ablation (mu_k, sigma)" + SAMPLE,
    "drmas_std": "Dr. MAS, arXiv 2602.08847, ablation (mu, sigma_k)" + SAMPLE,
    "at_grpo": "AT-GRPO, arXiv 2510.11062, group prompt+agent+turn" + SAMPLE,
    "dr_grpo": "Dr. GRPO, arXiv 2503.20783: R - mean",
    "rloo": "RLOO, arXiv 2402.14740: R - mean of the others",
    "reinforce_pp": "REINFORCE++ with the group's baseline, arXiv 2501.03262; whitened over tokens "
    "with the population deviation, 1e-6 added",
    "gigpo": "GiGPO, arXiv 2505.10978, with division by the deviation; step return R" + SAMPLE,
    "rae": "SPIRAL's role-conditioned baseline, arXiv 2506.24119; scored before the update",
}
GROUPED = tuple(name for name in SOURCES if name != "rae")


def float32(value: float) -> float:
    """The nearest float32, as the float64 it is equal to."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def rows(rewards: list[Any], **columns: Any) -> list[Row]:
    """Rows of one prompt and agent, each its own trajectory, unless columns say otherwise."""
    n = len(rewards)
    whole = {
        "reward": rewards,
        "prompt": [0] * n,
        "agent": ["solver"] * n,
        "trajectory": list(range(n)),
        "turn": [0] * n,
        "lengths": [5] * n,
        "anchor": [0] * n,
        **columns,
    }
    return [{name: values[i] for name, values in whole.items()} for i in range(n)]


def mistakes() -> list[tuple[str, list[Row], dict[str, str]]]:
    """Cases that some trainer has got wrong, for every grouped preset: title, rows, dtypes."""
    single = {"dtypes": {"rewards": "float32"}}
    absent = {"agent": ["solver"] * 4 + ["retry"] * 2, "trajectory": [0, 1, 2, 3, 0, 2],
              "turn": [0] * 4 + [1] * 2, "anchor": [0] * 4 + [1] * 2}  # fmt: skip
    return [
        ("a group of one row", rows([0.7]), {}),
        ("3 rewards of 0.9 in float32", rows([float32(0.9)] * 3), single["dtypes"]),
        ("12 rewards of 0.99 in float32", rows([float32(0.99)] * 12), single["dtypes"]),
        ("a pair", rows([1.0, 0.0]), {}),
        ("groups of 4, 3 and 4 rows, the second without spread",
         rows([1.0, 0.0, 0.0, 1.0, 5.0, 5.0, 5.0, 0.0, 1.0, 2.0, 3.0],
              prompt=[0] * 4 + [1] * 3 + [2] * 4), {}),
        ("three rows of one trajectory, one of another",
         rows([1.0, 1.0, 1.0, 0.0], trajectory=[0, 0, 0, 1], turn=[0, 1, 2, 0],
              anchor=[0, 1, 2, 0]), {}),
        ("an agent absent from half of the trajectories",
         rows([1.0, 1.0, 0.0, 0.0, 1.0, 0.0], **absent), {}),
        ("an unknown reward", rows([1.0, 0.0, None, 1.0, 0.0]), {}),
        ("one known row", rows([1.0, None, None]), {}),
        ("penalties within trajectories",
         rows([1.0, 0.9, 0.0, -0.1, 1.0, 1.0], trajectory=[0, 0, 1, 1, 2, 2],
              agent=["solver", "verifier"] * 3, turn=[0, 1] * 3, anchor=[0, 1, 0, 2, 0, 1]), {}),
    ]  # fmt: skip


def uneven(seed: int, failures: bool = True, prompts: int = 3) -> list[Row]:
    """A batch as real ones are: trajectories of 1-4 turns, failed ones, penalties, shuffled."""
    draw, result, trajectory = random.Random(seed), [], 0
    for prompt in range(prompts):
        for place in range(4 + prompt):
            reward = float((place + draw.randrange(2)) % 2)
            failed = failures and place == 2 and prompt != 1
            for turn in range(draw.choice([1, 2, 2, 3, 4])):
                agent = "verifier" if turn % 2 else "solver"
                penalty = 0.1 if draw.random() < 0.25 else 0.0
                result.append({
                    "reward": None if failed else round(reward - penalty, 3),
                    "prompt": 10 * prompt, "agent": agent, "trajectory": trajectory, "turn": turn,
                    "lengths": draw.randrange(1, 9), "anchor": draw.randrange(2) + 2 * (turn % 2),
                })  # fmt: skip
            trajectory += 1
    draw.shuffle(result)
    return result


NEEDS = {"at_grpo": ["turn"], "reinforce_pp": ["lengths"], "gigpo": ["anchor"]}


def entry(
    name: str, title: str, batch: list[Row], advantages: list[float], **extra: Any
) -> dict[str, Any]:
    """One case as it is written."""
    keys = ["prompt", "agent", "trajectory", *NEEDS.get(name, [])]
    inputs = {"rewards": [row["reward"] for row in batch],
              **{key: [row[key] for row in batch] for key in keys}}  # fmt: skip
    if None in inputs["rewards"]:
        inputs["known"] = [reward is not None for reward in inputs["rewards"]]
    options = extra.pop("options", {})
    return {
        "name": name,
        "title": title,
        "source": SOURCES[name],
        "inputs": inputs | extra.pop("inputs", {}),
        "options": options,
        "expected": {"advantages": advantages} | extra.pop("expected", {}),
        **extra,
    }


def cases() -> dict[str, list[dict[str, Any]]]:
    """All cases of kind `advantages`."""
    result = []
    for name in GROUPED:
        formula: Callable[..., list[float]] = getattr(formulas, name)
        for title, batch, dtypes in mistakes():
            extra = {"dtypes": dtypes} if dtypes else {}
            result.append(entry(name, title, batch, formula(batch), **extra))
        title = "uneven groups, absent agents, penalties"
        for seed, failures in ((1, True), (2, True), (5, False)):
            batch = uneven(seed, failures)
            ending = f", failed episodes ({seed})" if failures else ""
            result.append(entry(name, title + ending, batch, formula(batch)))
    for name in ("grpo", "drmas", "step_global", "at_grpo"):
        formula = getattr(formulas, name)
        for title, batch in (("a pair", rows([1.0, 0.0])), ("an uneven batch", uneven(3))):
            result.append(entry(name, f"{title}, population deviation", batch,
                                formula(batch, ddof=0), options={"std": "population"}))  # fmt: skip
    batch = uneven(4)
    half = {"anchor_weight": 0.5}
    found = formulas.gigpo(batch, **half)
    result.append(entry("gigpo", "anchors weighted with a half", batch, found, options=half))
    return {"advantages": [*result, *running()]}


def running() -> list[dict[str, Any]]:
    """Running means: two batches in a row, and one with a failed episode and another decay."""
    state, result = {"solver": 0.5, "verifier": -0.25}, []
    agent = ["solver", "verifier"]
    for title, rewards, decay in (
        ("a group of one trajectory", [1.0, 1.0], 0.95),
        ("the next batch", [0.0, 0.9], 0.95),
        ("a failed row moves nothing", [None, 0.4], 0.8),
    ):
        batch = rows(rewards, agent=agent, trajectory=[0, 0])
        advantages, after = formulas.rae(batch, state, decay)
        extra = {"inputs": {"state": state}, "expected": {"state": after}}
        options = {} if decay == 0.95 else {"decay": decay}
        result.append(entry("rae", title, batch, advantages, options=options, **extra))
        state = after
    return result
