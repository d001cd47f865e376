"""KL to a reference policy as a penalty in the loss.

Three estimates of KL(pi || ref) from one sampled token, with l = log pi - log ref (Schulman,
"Approximating KL divergence", 2020). What each does depends on where it stands. Expectations are
over tokens drawn from pi; "its gradient" is that of the penalty added to a loss.

| estimate | value | its gradient | expected gradient in the loss, per token |
|---|---|---|---|
| k1 | l | grad log pi | 0: it penalises nothing |
| k2 | l² / 2 | l grad log pi | grad KL(pi || ref) |
| k3 | exp(-l) - 1 + l | (1 - exp(-l)) grad log pi | grad KL(ref || pi), the other direction |

k1 and k3 are unbiased as values, k2 is not. Per token means: with the contexts held fixed. The KL
of whole responses also changes with the contexts that the tokens lead to; that part only reaches
the gradient through the reward. There k1 is the right one (`mas_train.experience.kl_reward`).
"""

from __future__ import annotations

from torch import Tensor

from mas_envs.errors import UnknownName
from mas_train.experience.kl_reward import ESTIMATORS
from mas_train.losses.ratio import clamped


def kl_penalty(log_probs: Tensor, reference_log_probs: Tensor, estimator: str = "k2") -> Tensor:
    """The estimate [K] of KL(pi || ref) at each sampled token, with gradient.

    `log_probs`, `reference_log_probs` [K] in nats; the second carries no gradient. In k3 the log
    ratio is clamped to ±20, and outside it no gradient flows. Raises `UnknownName`.
    """
    log_ratio = log_probs - reference_log_probs.detach()
    if estimator == "k1":
        return log_ratio
    if estimator == "k2":
        return log_ratio.square() / 2
    if estimator == "k3":
        log_ratio = clamped(log_ratio)
        return (-log_ratio).exp() - 1 + log_ratio
    raise UnknownName("KL estimator", estimator, ESTIMATORS)
