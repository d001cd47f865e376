"""Advantages of every preset beside a dictionary loop that does the same, in one run.

    python -m benchmarks.speed.advantages

Batches of 8 episodes per prompt, each of 4 turns by 3 agents, at two sizes; CPU time of one thread.
The loop is written as peers write it: rewards collected in a dictionary of lists, `np.mean` and
`np.std` of each list, then one pass over the rows. It is lean: labels are Python numbers and texts
before the clock starts, and each preset computes only what it needs. The last column is the largest
difference between the two results. `gae` is measured per token, beside a loop over each row's.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from benchmarks.speed.table import show, spread
from mas_envs.console import progress
from mas_train.advantages import EPS, PRESETS, advantages, anchors, counterfactual, gae, needs

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
AGENTS, TURNS, EPISODES = ("verifier", "search", "answer"), 4, 8


class Batch(NamedTuple):
    """Columns [N] as arrays, and the same as lists for the loop."""

    columns: dict[str, Any]
    lists: dict[str, list[Any]]


def batch_of(rows: int, seed: int = 0) -> Batch:
    """Turns in order; the verifier speaks twice, one row in ten has a penalty of its own."""
    rng = np.random.default_rng(seed)
    place = np.arange(rows)
    trajectory = place // TURNS
    solved = rng.random(int(trajectory.max()) + 1) < 0.4
    columns = {
        "rewards": solved[trajectory] - 0.1 * (rng.random(rows) < 0.1),
        "prompt": trajectory // EPISODES,
        "agent": np.array(AGENTS)[(place % TURNS) % len(AGENTS)],
        "trajectory": trajectory,
        "turn": place % TURNS,
        "lengths": rng.integers(1, 500, rows),
    }
    # two observations are possible at every turn of a prompt
    seen = 2 * (columns["prompt"] * TURNS + columns["turn"]) + rng.integers(0, 2, rows)
    columns["anchor"] = anchors(list(seen[:, None]), columns["agent"])
    return Batch(columns, {name: column.tolist() for name, column in columns.items()})


def moments_by(keys: Sequence[Any], values: Sequence[float]) -> dict[Any, tuple[float, float, int]]:
    """Mean, sample deviation and number of the values of each key."""
    found: dict[Any, list[float]] = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        found[key].append(value)
    return {
        key: (
            float(np.mean(group)),
            float(np.std(group, ddof=1)) if len(group) > 1 and max(group) > min(group) else 0.0,
            len(group),
        )
        for key, group in found.items()
    }


def returns_of(columns: dict[str, list[Any]]) -> tuple[list[Any], list[float], list[float]]:
    """Prompt and mean reward of each trajectory, and the latter by row."""
    found: dict[Any, list[float]] = defaultdict(list)
    prompt_of: dict[Any, Any] = {}
    for reward, one, prompt in zip(
        columns["rewards"], columns["trajectory"], columns["prompt"], strict=True
    ):
        found[one].append(reward)
        prompt_of[one] = prompt
    total = {one: float(np.mean(rewards)) for one, rewards in found.items()}
    by_row = [total[one] for one in columns["trajectory"]]
    return list(prompt_of.values()), list(total.values()), by_row


def standardised(
    keys: Sequence[Any], values: Sequence[float], counted: dict[Any, tuple[float, float, int]]
) -> list[float]:
    """(value - mean) / (std + EPS) by row, 0 without a spread."""
    result = []
    for key, value in zip(keys, values, strict=True):
        mean, std, _ = counted[key]
        result.append((value - mean) / (std + EPS) if std else 0.0)
    return result


def loop(preset: str, columns: dict[str, list[Any]]) -> list[float]:
    """The advantages of one preset by dictionaries and loops."""
    rewards, prompt, agent = columns["rewards"], columns["prompt"], columns["agent"]
    if preset in ("grpo", "dr_grpo", "rloo", "reinforce_pp", "gigpo"):
        prompts, totals, by_row = returns_of(columns)
        team = moments_by(prompts, totals)
        if preset == "grpo":
            return standardised(prompt, by_row, team)
        if preset == "rloo":
            return [
                (value - team[key][0]) * team[key][2] / (team[key][2] - 1)
                for key, value in zip(prompt, by_row, strict=True)
            ]
        if preset == "gigpo":
            states = list(zip(prompt, agent, columns["anchor"], strict=True))
            steps = standardised(states, rewards, moments_by(states, rewards))
            episodes = standardised(prompt, by_row, team)
            return [one + other for one, other in zip(episodes, steps, strict=True)]
        centred = [value - team[key][0] for key, value in zip(prompt, by_row, strict=True)]
        if preset == "dr_grpo":
            return centred
        tokens = np.repeat(centred, columns["lengths"])  # as peers do: over [tokens]
        mean, std = float(np.mean(tokens)), float(np.std(tokens))
        return [
            (value - mean) / (std + EPS) if team[key][1] else 0.0
            for key, value in zip(prompt, centred, strict=True)
        ]
    if preset == "rae":
        by_agent = moments_by(agent, rewards)
        return [
            (value - by_agent[key][0]) * by_agent[key][2] / (by_agent[key][2] - 1)
            for key, value in zip(agent, rewards, strict=True)
        ]
    if preset == "step_global":
        return standardised(prompt, rewards, moments_by(prompt, rewards))
    if preset == "at_grpo":
        keys = list(zip(prompt, agent, columns["turn"], strict=True))
        return standardised(keys, rewards, moments_by(keys, rewards))
    pairs = list(zip(prompt, agent, strict=True))
    own = moments_by(pairs, rewards)
    if preset == "drmas":
        return standardised(pairs, rewards, own)
    prompts, totals, _ = returns_of(columns)
    team = moments_by(prompts, totals)
    mixed = {
        key: (own[key][0], team[key[0]][1], 0)
        if preset == "drmas_mean"
        else (team[key[0]][0], own[key][1], 0)
        for key in own
    }
    return standardised(pairs, rewards, mixed)


def composed(preset: str, columns: dict[str, Any]) -> Any:
    """The advantages of one preset by `advantages`."""
    wanted = needs(preset)
    return advantages(
        columns["rewards"],
        columns["prompt"],
        columns["agent"],
        columns["trajectory"],
        columns["turn"],
        preset=preset,
        lengths=columns["lengths"] if "lengths" in wanted else None,
        anchor=columns["anchor"] if "anchor" in wanted else None,
        state={} if "state" in wanted else None,
    )


def others_loop(columns: dict[str, list[Any]]) -> list[float]:
    """Leave-one-out within (prompt, turn)."""
    keys = list(zip(columns["prompt"], columns["turn"], strict=True))
    found = moments_by(keys, columns["rewards"])
    return [
        (value - found[key][0]) * found[key][2] / (found[key][2] - 1)
        for key, value in zip(keys, columns["rewards"], strict=True)
    ]


def gae_loop(rewards: list[float], values: list[float], lengths: list[int]) -> list[float]:
    """A_t by a loop over the tokens of each row, gamma 1 and lambda .95."""
    result, end = [0.0] * len(values), 0
    for reward, length in zip(rewards, lengths, strict=True):
        start, end = end, end + length
        carried, following = 0.0, 0.0
        for at in range(end - 1, start - 1, -1):
            earned = reward if at == end - 1 else following
            carried = earned - values[at] + 0.95 * carried
            result[at], following = carried, values[at]
    return result


def timed(call: Callable[[], Any], repeats: int) -> tuple[list[float], Any]:
    """CPU milliseconds of each call (others may use the machine), and what the last one gave."""
    found, result = [], None
    for _ in range(repeats):
        start = time.thread_time()
        result = call()
        found.append((time.thread_time() - start) * 1e3)
    return found, result


def both(
    name: str, ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int, loops: int
) -> list[str]:
    """One row of the table."""
    mine, result = timed(ours, repeats)
    other, expected = timed(theirs, loops)
    ratio = float(np.median(other) / np.median(mine))
    apart = float(np.abs(np.asarray(result) - np.asarray(expected)).max())
    return [name, spread(mine), spread(other), f"{ratio:,.0f} ×", f"{apart:.0e}"]


def measure(rows: int, repeats: int, loops: int) -> list[list[str]]:
    """Every estimator at one size."""
    columns, lists = batch_of(rows)
    table = []
    with progress(f"{rows:,} rows", len(PRESETS), unit="presets") as bar:
        for preset in PRESETS:
            ours, theirs = partial(composed, preset, columns), partial(loop, preset, lists)
            table.append(both(preset, ours, theirs, repeats, loops))
            bar.advance()
    decision = columns["prompt"] * TURNS + columns["turn"]
    table.append(
        both(
            "counterfactual",
            lambda: counterfactual(columns["rewards"], decision),
            lambda: others_loop(lists),
            repeats,
            loops,
        )
    )
    return table


def measure_gae(rows: int, repeats: int, loops: int) -> list[str]:
    """`gae` over rows of 1 to 499 tokens."""
    columns, lists = batch_of(rows)
    tokens = int(columns["lengths"].sum())
    values = np.random.default_rng(1).random(tokens)
    as_list = values.tolist()
    return both(
        f"ppo (gae), {tokens:,} tokens",
        lambda: gae(columns["rewards"], values, columns["lengths"], lam=0.95)[0],
        lambda: gae_loop(lists["rewards"], as_list, lists["lengths"]),
        repeats,
        loops,
    )


@app.command()
def main(
    rows: Annotated[list[int] | None, typer.Option(help="Sizes.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Calls of ours at each size.")] = 15,
    loops: Annotated[int, typer.Option(min=1, help="Calls of the loop, 1 above 100,000 rows.")] = 5,
) -> None:
    """Print the tables."""
    for size in rows or (8_192, 1_000_000):
        small = size <= 100_000  # beyond it the loop takes minutes
        table = measure(size, repeats, loops if small else 1)
        if small:
            table.append(measure_gae(size, repeats, loops))
        show(
            f"{size:,} rows, CPU milliseconds on one thread: median (range)",
            ["estimator", "ours", "dictionary loop", "ratio", "apart"],
            table,
        )


if __name__ == "__main__":
    app()
