"""What `metrics.jsonl` holds of one training step: the team, each agent, each model, the clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from mas_envs import Episode
from mas_train.experience.rows import Rows
from mas_train.run.monitor import agent_statistics


def step_metrics(
    step: int,
    episodes: Sequence[Episode],
    rows: Rows,
    credit: Any,
    models: dict[str, dict[str, float]],
    seconds: dict[str, float],
) -> dict[str, Any]:
    """What `metrics.jsonl` holds of one step: the team, each agent (the monitor), each model.

    `reward` is the mean team reward of an episode, an agent's `own_reward` what its turns earned on
    top of it (penalties, shaping, rewards of their own), and its `mu` the mean of both together.
    `accuracy` is over the episodes that were graded and decided; `undecided` counts the others.
    """
    played = [episode for episode in episodes if episode.status == "done"]
    graded = [episode.grade.correct for episode in played if episode.grade is not None]
    decided = [correct for correct in graded if correct is not None]
    statistics = agent_statistics(
        rows.reward, rows.prompt, rows.agent, rows.trajectory, credit, rows.known
    )
    agents: dict[str, dict[str, float | None]] = {}
    for role, statistic in statistics.items():
        turns = [turn for episode in played for turn in episode.turns if turn.role == role]
        norms = [m[f"grad_norm/{role}"] for m in models.values() if f"grad_norm/{role}" in m]
        agents[role] = {
            **statistic._asdict(),
            "grad_norm": math.hypot(*norms) if norms else None,  # its agents may differ in model
            "own_reward": float(np.mean([turn.reward for turn in turns])),
            "invalid_share": float(np.mean([turn.parse_status != "ok" for turn in turns])),
            "response_tokens": float(np.mean([turn.response_tokens for turn in turns])),
        }
    sampled = sum(turn.response_tokens for episode in episodes for turn in episode.turns)
    return {
        "step": step,
        "reward": float(np.mean([episode.reward for episode in played])) if played else None,
        "accuracy": float(np.mean(decided)) if decided else None,
        "undecided": len(graded) - len(decided),
        **failures(episodes),
        "agents": agents,
        "models": models,
        "seconds": seconds,
        "tokens_per_second": sampled / seconds["rollout"],
    }


def failures(episodes: Sequence[Episode]) -> dict[str, Any]:
    """How many episodes failed and why. `expired_tokens` are the lengths of those that ran into
    their deadline: leaving them out favours short episodes, and a reader should see by how much.
    """
    failed = [episode for episode in episodes if episode.status == "failed"]
    expired = [episode for episode in failed if episode.reason.startswith("deadline")]
    return {
        "failed": len(failed),
        "failures": dict(Counter(episode.reason for episode in failed)),
        "expired_tokens": sorted(sum(t.response_tokens for t in e.turns) for e in expired),
    }
