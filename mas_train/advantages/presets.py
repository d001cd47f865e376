"""The published estimators as choices in one table; `compose.advantages` carries them out.

| column | choices |
|---|---|
| unit  | `turn`: every row counts once; `trajectory`: the rows of a trajectory count once, with their mean reward, and share one advantage |
| group | rows compared with each other: `prompt`, `agent`, `turn`, `anchor`, joined by `+` |
| mean  | `group`: mean of the group; `others`: mean of the group without the row itself; `global`: mean of the prompt's trajectories; `running`: the agent's running mean over earlier batches |
| std   | `sample` (ddof 1) or `population` (ddof 0) deviation of the group; `global` or `global_population`: the same of the prompt's trajectories; `tokens`: whitening over the tokens of the batch; `none`: no division |
| step  | group of a second advantage over rows (unit `turn`, same mean and std), added with a weight |

`tokens`: A = R - mean, then (A - m) / (s + EPS) with m the mean and s the population deviation of A
over all response tokens of the known rows, those with A = 0 among them: a row of T tokens counts T
times. Rows of a group without spread, or with one known member, stay at exactly 0: the published
shift by m would push up or down what nothing is known about.

`running`: R - b, b the agent's mean before this batch. All rows of a batch are scored against the
same b, and then b moves by 1 - decay^n towards the mean of the agent's n known rows (trajectories,
if they are the unit): so the order of rows cannot matter, and n equal rewards move b as far as n
single updates do. An agent that has no b yet is scored against the mean of its *other* rows, and
then gets the mean of all: a b of 0 would reinforce whatever was sampled first. A single first row
gets 0.

`step`: a row is compared with the rows of its prompt and agent that have the same anchor. Its
return is the row's R, that is, GiGPO's step return with a discount of 1.

Sources, arXiv: grpo 2402.03300; drmas, and as its ablation step_global, drmas_mean and drmas_std,
2602.08847; dr_grpo 2503.20783; rloo 2402.14740; at_grpo 2510.11062; reinforce_pp 2501.03262 (its
variant with a group's mean as baseline); rae 2506.24119; gigpo 2505.10978.

A preset says how advantages are made, not how token losses are added up. Dr. GRPO as published also
divides by a constant: set `loss.aggregation: constant` beside `dr_grpo`.

Two estimators are no such choices but functions of their own (`SEPARATE`): `ppo` has an advantage
per token (`gae`), `counterfactual` compares alternatives of one decision (`counterfactual`).
"""  # noqa: E501

from __future__ import annotations

from typing import NamedTuple

from mas_envs.errors import UnknownName, UserError

UNITS = ("turn", "trajectory")
GROUP_KEYS = ("prompt", "agent", "turn", "anchor")
MEANS = ("group", "others", "global", "running")
STDS = ("sample", "population", "global", "global_population", "tokens", "none")


class Preset(NamedTuple):
    """Which unit is counted, what is grouped, what is subtracted, what it is divided by."""

    unit: str
    group: str
    mean: str
    std: str
    step: str = ""


# fmt: off
PRESETS: dict[str, Preset] = {
    #                      unit          group                mean       std
    "grpo":         Preset("trajectory", "prompt",            "group",   "sample"),
    "drmas":        Preset("turn",       "prompt+agent",      "group",   "sample"),
    "step_global":  Preset("turn",       "prompt",            "group",   "sample"),
    "drmas_mean":   Preset("turn",       "prompt+agent",      "group",   "global"),
    "drmas_std":    Preset("turn",       "prompt+agent",      "global",  "sample"),
    "dr_grpo":      Preset("trajectory", "prompt",            "group",   "none"),
    "rloo":         Preset("trajectory", "prompt",            "others",  "none"),
    "at_grpo":      Preset("turn",       "prompt+agent+turn", "group",   "sample"),
    "reinforce_pp": Preset("trajectory", "prompt",            "group",   "tokens"),
    "rae":          Preset("turn",       "agent",             "running", "none"),
    "gigpo":        Preset("trajectory", "prompt",            "group",   "sample",
                           step="prompt+agent+anchor"),
}
# fmt: on

SEPARATE = {"ppo": "gae", "counterfactual": "counterfactual"}
"""Estimators that are functions of their own, and which."""


def check_choices(
    preset: str,
    unit: str | None = None,
    group: str | None = None,
    mean: str | None = None,
    std: str | None = None,
) -> Preset | None:
    """The choices of a preset with those given instead; None for one of `SEPARATE`.

    Raises `UnknownName` for a name that does not exist, and `UserError` for choices given to one of
    `SEPARATE`, or a running mean of another group than an agent's rows.
    """
    every = {"unit": unit, "group": group, "mean": mean, "std": std}
    given = {name: value for name, value in every.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, str):
            raise UserError(f"estimator {name} must be a text like 'prompt+agent', not {value!r}")
        if preset in SEPARATE:
            raise UserError(f"estimator {preset!r} has no {name!r}; leave {value!r} out")
    if preset in SEPARATE:
        return None
    if preset not in PRESETS:
        raise UnknownName("estimator preset", preset, (*PRESETS, *SEPARATE))
    choice = PRESETS[preset]._replace(**given)
    for kind, value, allowed in (
        ("unit", choice.unit, UNITS),
        ("mean", choice.mean, MEANS),
        ("std", choice.std, STDS),
        *(("group", key, GROUP_KEYS) for key in choice.group.split("+")),
    ):
        if value not in allowed:
            raise UnknownName(f"estimator {kind}", value, allowed)
    if choice.mean == "running" and (choice.group != "agent" or choice.step):
        raise UserError(
            "estimator mean 'running' is kept per agent, so the group must be 'agent', not "
            f"{choice.step or choice.group!r}; take preset 'rae'"
        )
    return choice


def composed(
    preset: str, unit: str | None, group: str | None, mean: str | None, std: str | None
) -> Preset:
    """The choices of a preset as `check_choices` has them; one of `SEPARATE` is a `UserError`."""
    choice = check_choices(preset, unit, group, mean, std)
    if choice is None:
        raise UserError(
            f"estimator {preset!r} is not one of advantages(); call {SEPARATE[preset]}() instead"
        )
    return choice


def needs(
    preset: str = "drmas",
    unit: str | None = None,
    group: str | None = None,
    mean: str | None = None,
    std: str | None = None,
) -> frozenset[str]:
    """Which of `lengths`, `anchor` and `state` `advantages` needs; it refuses the others.

    Empty for `ppo` and `counterfactual`, whose functions have arguments of their own. Raises what
    `check_choices` raises.
    """
    choice = check_choices(preset, unit, group, mean, std)
    return frozenset() if choice is None else inputs_of(choice)


def inputs_of(choice: Preset) -> frozenset[str]:
    """`needs` of choices already made."""
    wanted = {
        "lengths": choice.std == "tokens",
        "anchor": "anchor" in f"{choice.group}+{choice.step}".split("+"),
        "state": choice.mean == "running",
    }
    return frozenset(name for name, is_wanted in wanted.items() if is_wanted)
