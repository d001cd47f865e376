"""Advantage = unit x grouping x mean x std, over arrays of rows. No torch, no loop over rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mas_envs.errors import UnknownName, UserError
from mas_train.advantages.groups import Codes, Floats, Mask, Moments, codes, cross, moments
from mas_train.advantages.presets import GROUP_KEYS, MEANS, PRESETS, STDS, UNITS, Preset

EPS = 1e-6
"""Added to the deviation before dividing, as in the reference implementation of Dr. MAS."""


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
) -> Floats:
    """The advantage of every row (one row = one turn of one agent).

    All arrays have shape [N] and are aligned: `rewards` in reward units, `prompt`, `agent` (the
    role) and `trajectory` labels of any kind, `turn` a label of the turn (needed only when it is
    grouped by). `preset` names a row of `PRESETS` (see `presets` for the choices and the papers);
    `unit`, `group`, `mean`, `std` override one of its choices. `known` [N] bool: rows of failed
    episodes are False; they get 0 and enter no statistic.

    Returns float64 [N]. It is exactly 0 where the deviation divided by belongs to a group without
    spread, and where a statistic has fewer than two known members. A row's own reward minus a mean
    of equal rewards is exactly 0.

    Raises `UnknownName` for an unknown preset or choice, `UserError` for arrays of different
    length, a reward that is not finite in a known row, and `lengths`, `anchor` or `state` given to
    an estimator that does not use them (none of the present ones does).
    """
    choice = check_choices(preset, unit, group, mean, std)
    for name, value in (("lengths", lengths), ("anchor", anchor), ("state", state)):
        if value is not None:
            raise UserError(f"estimator {preset!r} makes no use of {name!r}; leave it out")
    values, seen = _checked_rewards(rewards, known)
    labels = _checked_labels(
        len(values), {"prompt": prompt, "agent": agent, "trajectory": trajectory, "turn": turn}
    )
    if len(values) == 0:
        return values
    groups = cross(*(_label(labels, key) for key in choice.group.split("+")))
    rollouts = cross(labels["prompt"], labels["trajectory"])
    units = cross(groups, rollouts) if choice.unit == "trajectory" else None
    counted, own = _statistics(values, seen, groups, units)
    mean_from = std_from = own
    if choice.mean == "global" or choice.std.startswith("global"):
        team = _statistics(values, seen, labels["prompt"], rollouts)[1]
        mean_from = team if choice.mean == "global" else own
        std_from = team if choice.std.startswith("global") else own
    return np.where(seen, _standardise(counted, choice, mean_from, std_from), 0.0)


class _Statistics(NamedTuple):
    """Moments of K groups and the group of each row [N]."""

    moments: Moments
    group: Codes


def _statistics(
    values: Floats, seen: Mask, groups: Codes, units: Codes | None
) -> tuple[Floats, _Statistics]:
    """What each row counts with [N] (its unit's mean reward) and the statistics of its group."""
    size = int(groups.max()) + 1
    if units is None:
        return values, _Statistics(moments(values[seen], groups[seen], size), groups)
    unit = moments(values[seen], units[seen], int(units.max()) + 1)
    group_of_unit = np.empty_like(unit.members, dtype=np.int64)
    group_of_unit[units] = groups
    alive = unit.members > 0
    of_units = moments(unit.mean[alive], group_of_unit[alive], size)
    return unit.mean[units], _Statistics(of_units, groups)


def _standardise(
    values: Floats, choice: Preset, mean_from: _Statistics, std_from: _Statistics
) -> Floats:
    """(value - mean) / (std + EPS) by row; 0 where a statistic has too few members or no spread."""
    members = mean_from.moments.members[mean_from.group]
    centred = values - mean_from.moments.mean[mean_from.group]
    valid = members >= 2
    if choice.mean == "others":  # R - (S - R)/(n - 1) = (R - S/n) * n/(n - 1)
        centred = centred * members / np.maximum(members - 1, 1)
    if choice.std != "none":
        scale, group = std_from
        deviation = scale.std(ddof=0 if choice.std.endswith("population") else 1)
        centred = centred / (deviation[group] + EPS)
        valid &= (scale.members >= 2)[group] & scale.spread[group]
    return np.where(valid, centred, 0.0)


def check_choices(
    preset: str, unit: str | None, group: str | None, mean: str | None, std: str | None
) -> Preset:
    """The choices of a preset with those given instead. Raises `UnknownName`."""
    if preset not in PRESETS:
        raise UnknownName("estimator preset", preset, PRESETS)
    base = PRESETS[preset]
    choice = Preset(unit or base.unit, group or base.group, mean or base.mean, std or base.std)
    for kind, value, allowed in (
        ("unit", choice.unit, UNITS),
        ("mean", choice.mean, MEANS),
        ("std", choice.std, STDS),
        *(("group", key, GROUP_KEYS) for key in choice.group.split("+")),
    ):
        if value not in allowed:
            raise UnknownName(f"estimator {kind}", value, allowed)
    return choice


def _checked_rewards(rewards: Any, known: Any) -> tuple[Floats, Mask]:
    values = np.array(rewards, dtype=np.float64)
    seen = np.ones(values.shape, dtype=np.bool_) if known is None else np.array(known, np.bool_)
    if values.ndim != 1 or seen.shape != values.shape:
        raise UserError(f"rewards {values.shape} and known {seen.shape} must both have shape [N]")
    bad = seen & ~np.isfinite(values)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise UserError(
            f"the reward of row {row} is {values[row]}; mark rows without a reward known=False"
        )
    return np.where(seen, values, 0.0), seen


def _checked_labels(rows: int, labels: dict[str, Any]) -> dict[str, Codes]:
    given = {name: codes(value) for name, value in labels.items() if value is not None}
    for name, value in given.items():
        if len(value) != rows:
            raise UserError(f"{name!r} has {len(value)} rows, the rewards have {rows}")
    return given


def _label(labels: dict[str, Codes], key: str) -> Codes:
    if key not in labels:
        raise UserError(f"the estimator groups by {key!r}, so the {key!r} of each row is needed")
    return labels[key]
