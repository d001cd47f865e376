"""This trainer's own functions, in the form that the checks call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mas_train.advantages import advantages, counterfactual, gae
from mas_train.conformance.cases import KINDS
from mas_train.conformance.check import check
from mas_train.conformance.report import Report
from mas_train.experience.kl_reward import kl_reward
from mas_train.experience.overlong import overlong_penalty
from mas_train.learner.weights import token_weights


def check_ours(tolerance: float = 1e-9) -> dict[str, Report]:
    """Every kind of golden case against this trainer. Needs torch."""
    return {kind: check(kind, OURS[kind], tolerance=tolerance) for kind in KINDS}


def _loss(
    log_probs: Any, old_log_probs: Any, advantages: Any, row: Any, name: str, **options: Any
) -> Any:
    from mas_train.config import LossConfig
    from mas_train.losses import surrogate

    loss = LossConfig(surrogate=name, **options)  # type: ignore[arg-type]
    return surrogate(loss, log_probs, old_log_probs, old_log_probs, advantages, row).loss


def _kl(log_probs: Any, reference_log_probs: Any, estimator: str) -> Any:
    from mas_train.losses import kl_penalty

    return kl_penalty(log_probs, reference_log_probs, estimator)


def _kl_reward(log_probs: Any, reference_log_probs: Any, row: Any, estimator: str) -> Any:
    ends = np.cumsum(np.bincount(row))[:-1]
    return kl_reward(np.split(log_probs, ends), np.split(reference_log_probs, ends), estimator)


def _correction(
    old_log_probs: Any, sampler_log_probs: Any, row: Any, name: str, **options: Any
) -> Any:
    from mas_train.config import CorrectionConfig
    from mas_train.losses import correction_weights

    correction = CorrectionConfig(name=name, **options)  # type: ignore[arg-type]
    return correction_weights(correction, old_log_probs, sampler_log_probs, row)


def _value_loss(values: Any, old_values: Any, returns: Any, clip: float | None) -> Any:
    from mas_train.losses import value_loss

    return value_loss(values, old_values, returns, clip)


def _total(losses: Any, row: Any, micro_batches: Sequence[Any], **options: Any) -> float:
    """The way of this trainer: weights over the whole batch first, then a sum over its parts."""
    weights = token_weights(np.bincount(row), **options)
    parts = [np.isin(row, rows) for rows in micro_batches]
    return sum(float((weights[row[part]] * losses[part]).sum()) for part in parts)


OURS: dict[str, Callable[..., Any]] = {
    "advantages": advantages,
    "gae": gae,
    "counterfactual": counterfactual,
    "loss": _loss,
    "kl": _kl,
    "kl_reward": _kl_reward,
    "correction": _correction,
    "value_loss": _value_loss,
    "weights": token_weights,
    "total": _total,
    "overlong": overlong_penalty,
}
