"""Advantage = unit x grouping x mean x std, over arrays of rows. No torch, no loop over rows."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mas_envs.errors import UserError
from mas_train.advantages.columns import checked_labels, checked_lengths, checked_rewards
from mas_train.advantages.groups import Codes, Floats, Mask, Moments, codes, cross, moments
from mas_train.advantages.presets import Preset, composed, inputs_of
from mas_train.advantages.running import checked_state, minus_running, names_of

EPS = 1e-6
"""Added to the deviation before dividing, as in the reference implementation of Dr. MAS."""

ANCHOR_WEIGHT, DECAY = 1.0, 0.95

INPUTS = {
    "lengths": "the number of response tokens of each row [N]",
    "anchor": "a label of what the agent saw at each row [N], see anchors()",
    "state": "a dict role → running mean, empty at first, kept from batch to batch",
}


def advantages(
    rewards: Any,
    prompt: Any,
    agent: Any,
    trajectory: Any,
    turn: Any = None,
    *,
    preset: str = "drmas",
    unit: str | None = None,
    group: str | None = None,
    mean: str | None = None,
    std: str | None = None,
    known: Any = None,
    lengths: Any = None,
    anchor: Any = None,
    state: Any = None,
    anchor_weight: float = ANCHOR_WEIGHT,
    decay: float = DECAY,
) -> Floats:
    """The advantage of every row (one row = one turn of one agent).

    All arrays have shape [N] and are aligned: `rewards` in reward units, `prompt`, `agent` (the
    role) and `trajectory` labels of any kind, `turn` a label of the turn (needed only when it is
    grouped by). `preset` names a row of `PRESETS` (see `presets` for the choices and the papers);
    `unit`, `group`, `mean`, `std` override one of its choices. `known` [N] bool: rows of failed
    episodes are False; they get 0 and enter no statistic. Some estimators need more (`needs`):

    `lengths` [N] the response tokens of each row (std `tokens`), `anchor` [N] a label of what the
    agent saw (`anchors` makes them; `gigpo` adds `anchor_weight` times the step's advantage), and
    `state` a dict role → running mean that moves with `decay`: the caller keeps and saves it.

    Returns float64 [N]. It is exactly 0 where the mean is that of a group without spread, where the
    deviation divided by belongs to one, and where a statistic has fewer than two known members.
    Members that differ by no more than 1e-12 of their size, rounding, are no spread.

    Raises `UnknownName` for an unknown preset or choice; `UserError` for `ppo` and `counterfactual`
    (functions of their own), arrays of different length, a reward that is not finite in a known
    row, and `lengths`, `anchor`, `state`, `anchor_weight` or `decay` that an estimator needs and
    lacks or does not use.
    """
    choice = composed(preset, unit, group, mean, std)
    _check_inputs(preset, choice, {"lengths": lengths, "anchor": anchor, "state": state})
    _check_weights(preset, choice, anchor_weight, decay)
    values, seen = checked_rewards(rewards, known)
    rows = len(values)
    given = {"prompt": prompt, "agent": agent, "trajectory": trajectory}
    given |= {name: some for name, some in (("turn", turn), ("anchor", anchor)) if some is not None}
    labels = {name: checked_labels(name, some, rows) for name, some in given.items()}
    times = None if lengths is None else checked_lengths(lengths, rows).astype(np.float64)
    means = None if state is None else checked_state(state)
    if rows == 0:
        return values
    batch = _Batch(values, seen, labels, times)
    if means is not None:
        credit = _against_running(batch, choice, means, decay)
    else:
        credit = _against_others(batch, choice)
    if choice.step:
        within = choice._replace(unit="turn", group=choice.step)
        credit = credit + anchor_weight * _against_others(batch, within)
    return credit if seen.all() else np.where(seen, credit, 0.0)


@dataclass(slots=True)
class _Batch:
    """The checked columns [N] of `advantages`; labels become codes when first needed."""

    values: Floats
    seen: Mask
    labels: dict[str, NDArray[Any]]
    times: Floats | None
    _codes: dict[str, Codes] = field(default_factory=dict)

    def codes(self, group: str) -> Codes:
        """The group of each row: `group` names labels joined by `+`."""
        if group not in self._codes:
            keys = group.split("+")
            self._codes[group] = cross(*map(self.codes, keys)) if keys[1:] else self._single(group)
        return self._codes[group]

    def _single(self, key: str) -> Codes:
        if key not in self.labels:
            raise UserError(
                f"the estimator groups by {key!r}, so the {key!r} of each row is needed"
            )
        return codes(self.labels[key])

    def statistics(self, group: str, unit: str) -> tuple[Floats, _Statistics]:
        """What each row counts with [N] (its unit's mean reward), and its group's statistics."""
        groups = self.codes(group)
        size, seen = int(groups.max()) + 1, slice(None) if self.seen.all() else self.seen
        if unit == "turn":
            of_group = moments(self.values[seen], groups[seen], size)
            return self.values, _Statistics(of_group, groups)
        units = cross(groups, self.codes("prompt+trajectory"))
        of_unit = moments(self.values[seen], units[seen], int(units.max()) + 1)
        group_of_unit = np.empty_like(of_unit.members, dtype=np.int64)
        group_of_unit[units] = groups
        alive = of_unit.members > 0
        of_group = moments(of_unit.mean[alive], group_of_unit[alive], size)
        return of_unit.mean[units], _Statistics(of_group, groups)


class _Statistics(NamedTuple):
    """Moments of K groups and the group of each row [N]."""

    moments: Moments
    group: Codes


def _against_others(batch: _Batch, choice: Preset) -> Floats:
    """(reward - mean) / (std + EPS) by row, from rewards of this batch.

    It is 0 where a statistic has too few members or no spread.
    """
    counted, own = batch.statistics(choice.group, choice.unit)
    mean_from = std_from = own
    if choice.mean == "global" or choice.std.startswith("global"):
        team = batch.statistics("prompt", "trajectory")[1]
        mean_from = team if choice.mean == "global" else own
        std_from = team if choice.std.startswith("global") else own
    centred = counted - mean_from.moments.mean[mean_from.group]
    enough = mean_from.moments.members >= 2
    if mean_from is own or choice.std == "tokens":  # no noise of means that are equal
        enough &= mean_from.moments.spread
    valid = enough[mean_from.group]
    if choice.mean == "others":  # R - (S - R)/(n - 1) = (R - S/n) * n/(n - 1)
        members = mean_from.moments.members[mean_from.group]
        centred = centred * members / np.maximum(members - 1, 1)
    return _divided(batch, centred, valid, std_from, choice.std)


def _against_running(
    batch: _Batch, choice: Preset, means: MutableMapping[Any, float], decay: float
) -> Floats:
    """Reward - running mean of the agent, divided as `choice` says; moves the means."""
    counted, own = batch.statistics("agent", choice.unit)
    std_from = own
    if choice.std.startswith("global"):
        std_from = batch.statistics("prompt", "trajectory")[1]
    roles = names_of(batch.labels["agent"], own.group)
    centred = minus_running(counted, own.moments, own.group, roles, means, decay)
    return _divided(batch, centred, np.ones_like(batch.seen), std_from, choice.std)


def _divided(
    batch: _Batch, centred: Floats, valid: Mask, std_from: _Statistics, std: str
) -> Floats:
    """`centred` [N] by its deviation; 0 where it is not `valid` or there is no spread."""
    if std == "tokens":
        assert batch.times is not None
        counted = batch.seen & (batch.times > 0)
        whole = np.where(valid, centred, 0.0)
        together = np.zeros(int(counted.sum()), np.int64)
        over = moments(whole[counted], together, 1, batch.times[counted])
        valid = valid & over.spread[0]
        centred = (centred - over.mean[0]) / (over.std(ddof=0)[0] + EPS)
    elif std != "none":
        scale, group = std_from
        deviation = scale.std(ddof=0 if std.endswith("population") else 1)
        centred = centred / (deviation + EPS)[group]
        valid = valid & scale.spread[group]
    return np.where(valid, centred, 0.0)


def _check_inputs(preset: str, choice: Preset, given: dict[str, Any]) -> None:
    """Raises `UserError` for what the estimator needs and lacks, or has no use for."""
    wanted = inputs_of(choice)
    for name, value in given.items():
        if value is not None and name not in wanted:
            raise UserError(f"estimator {preset!r} makes no use of {name!r}; leave it out")
        if value is None and name in wanted:
            raise UserError(f"estimator {preset!r} needs {name!r}: {INPUTS[name]}")


def _check_weights(preset: str, choice: Preset, anchor_weight: float, decay: float) -> None:
    """Raises `UserError` for a weight or decay out of range, or that nothing would use."""
    if not (math.isfinite(anchor_weight) and anchor_weight >= 0):
        raise UserError(f"anchor_weight {anchor_weight} must be a number that is not negative")
    if not 0 <= decay < 1:
        raise UserError(f"decay {decay} must be at least 0 and below 1")
    if anchor_weight != ANCHOR_WEIGHT and not choice.step:
        raise UserError(f"estimator {preset!r} makes no use of 'anchor_weight'; leave it out")
    if decay != DECAY and choice.mean != "running":
        raise UserError(f"estimator {preset!r} makes no use of 'decay'; leave it out")
