"""Alternatives of one decision, compared with each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from mas_train.advantages.columns import checked_labels, checked_rewards
from mas_train.advantages.compose import advantages
from mas_train.advantages.groups import Floats


def counterfactual(rewards: Any, decision: Any, known: Any = None) -> Floats:
    """R_i minus the mean reward of the other alternatives of the same decision, [N].

    One row is one alternative: an episode was replayed up to a decision, another response was
    sampled there, and the workflow played on to its end for R (C3, arXiv 2603.06859). `decision`
    [N] labels the decision of each row, such as (episode, index of the turn) as one number or text:
    rows with one label answered the same agent's same observation after the same events. The
    response that the original episode has there is an alternative like the others. A row that is
    an alternative of no decision (a turn after the fork) is left out, or `known=False`.

    The mean of the others does not depend on the row's own response, so the gradient is unbiased.
    A decision with one known row gives 0, one whose alternatives all earned the same exactly 0;
    unknown rows get 0 and enter no mean.

    Returns float64 [N]. Raises `UserError` for arrays of different shape and for a reward that is
    not finite in a known row.
    """
    values, seen = checked_rewards(rewards, known)
    group = checked_labels("decision", decision, len(values))
    alone = np.zeros(len(values), np.int64)
    return advantages(values, group, alone, alone, preset="rloo", unit="turn", known=seen)
