"""KL to a reference policy as a cost taken from the reward of a turn (no torch needed).

With l = log pi - log ref summed over a turn, the policy gradient of the reward -k1 = -l is exactly
that of -KL(pi || ref) of whole responses. k2 and k3 are offered because published runs use them;
as rewards both are biased: the expected gradient of -k3 is that of -(KL(pi || ref) - KL(ref || pi))
per token, and k2 is not even an unbiased value (Schulman, "Approximating KL divergence", 2020).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mas_envs.errors import UnknownName, UserError

Floats = NDArray[np.floating]
ESTIMATORS = ("k1", "k2", "k3")


def kl_reward(
    log_probs: Sequence[Floats], reference_log_probs: Sequence[Floats], estimator: str = "k1"
) -> NDArray[np.float64]:
    """The estimate of KL(pi || ref) of each row [N], summed over its tokens, in nats.

    Of row i: `log_probs[i]` [T] of its tokens under the policy that sampled them, and under the
    reference. Take β times it from the row's reward. A row without tokens has 0. In k3 the log
    ratio is clamped to ±20. Raises `UnknownName`, and `UserError` for arrays of different length.
    """
    if estimator not in ESTIMATORS:
        raise UnknownName("KL estimator", estimator, ESTIMATORS)
    if len(log_probs) != len(reference_log_probs):
        raise UserError(f"{len(log_probs)} rows but {len(reference_log_probs)} of the reference")
    result = np.zeros(len(log_probs))
    for i, (own, reference) in enumerate(zip(log_probs, reference_log_probs, strict=True)):
        if len(own) != len(reference):
            raise UserError(f"row {i}: {len(own)} log-probs but {len(reference)} of the reference")
        log_ratio = np.asarray(own, np.float64) - np.asarray(reference, np.float64)
        if estimator == "k2":
            log_ratio = log_ratio**2 / 2
        elif estimator == "k3":
            log_ratio = np.clip(log_ratio, -20.0, 20.0)
            log_ratio = np.expm1(-log_ratio) + log_ratio
        result[i] = log_ratio.sum()
    return result
