"""From the rows of a step to what each of its tokens is credited with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mas_train.advantages import advantages, anchors, counterfactual, gae, needs, whiten
from mas_train.config import Config
from mas_train.experience.kl_reward import kl_reward
from mas_train.experience.overlong import overlong_penalty
from mas_train.experience.rows import Rows
from mas_train.learner.batch import PerToken


class Credit(NamedTuple):
    """`rows` with their final rewards; `advantages` [N], or with estimator ppo one array [T] a
    row; `columns`: what the loss needs of each token besides (see `Batch`), one array [T] a row.
    """

    rows: Rows
    advantages: NDArray[np.float64] | list[NDArray[np.float64]]
    columns: Mapping[str, PerToken]

    @property
    def per_row(self) -> NDArray[np.float64]:
        """The advantage of each row [N], averaged over its tokens."""
        if isinstance(self.advantages, np.ndarray):
            return self.advantages
        return np.array([one.mean() if len(one) else 0.0 for one in self.advantages])


def assign_credit(
    config: Config,
    rows: Rows,
    columns: Mapping[str, PerToken],
    baselines: dict[str, float],
    decision: NDArray[np.int64] | None = None,
) -> Credit:
    """Shape the rewards as configured and estimate the advantages.

    `columns` may hold `reference_log_probs`, which a KL in the reward needs, and `values`, which
    ppo needs. `baselines` are the running means of estimator rae, which it moves; `decision` [N]
    tells which rows are alternatives of each other (counterfactual).
    """
    estimator = config.estimator
    added = shaping(config, rows, columns.get("reference_log_probs"))
    rows = replace(rows, reward=rows.reward + added)
    lengths = np.array([len(ids) for ids in rows.ids], np.int64)
    if estimator.preset == "counterfactual":
        assert decision is not None
        return Credit(rows, counterfactual(rows.reward, decision, rows.known), columns)
    if estimator.preset == "ppo":
        flat = np.concatenate([np.zeros(0), *columns["values"]])
        found, returns = gae(
            rows.reward, flat, lengths, gamma=estimator.gamma, lam=estimator.lam, known=rows.known
        )
        found = whiten(found, lengths, rows.agent, known=rows.known)
        ends = np.cumsum(lengths)[:-1]
        columns = {**columns, "returns": np.split(returns, ends)}
        return Credit(rows, np.split(found, ends), columns)
    offered: dict[str, Any] = {
        "lengths": lambda: lengths,
        "anchor": lambda: anchors(rows.prompt_ids, rows.agent),
        "state": lambda: baselines,
    }
    given = {name: offered[name]() for name in needs(**estimator.choices())}
    found = advantages(
        rows.reward,
        rows.prompt,
        rows.agent,
        rows.trajectory,
        rows.turn,
        known=rows.known,
        anchor_weight=estimator.anchor_weight,
        decay=estimator.decay,
        **given,
        **estimator.choices(),
    )
    return Credit(rows, found, columns)


def shaping(
    config: Config, rows: Rows, reference_log_probs: PerToken | None
) -> NDArray[np.float64]:
    """What the configuration adds to each row's reward [N]: overlong penalty, KL in the reward.

    Only turns that are learned from change: a frozen model's are rewarded as they were.
    """
    added = np.zeros(len(rows))
    overlong, kl = config.rollout.overlong, config.loss.kl
    if overlong is not None and overlong.buffer:
        lengths = [len(ids) for ids in rows.ids]
        most = config.rollout.max_tokens
        added += overlong_penalty(lengths, most, overlong.buffer, overlong.penalty)
    if kl is not None and kl.place == "reward":
        assert reference_log_probs is not None
        distance = kl_reward(rows.log_probs, reference_log_probs, kl.estimator)
        added -= kl.coefficient * distance
    models = [config.agents[config.entry(one)].model for one in rows.agent_id.tolist()]
    learns = np.array([config.models[name].optimizer is not None for name in models], np.bool_)
    return np.where(learns, added, 0.0)
