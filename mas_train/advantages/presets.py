"""The published estimators as choices in one table; `compose.advantages` carries them out.

| column | choices |
|---|---|
| unit  | `turn`: every row counts once; `trajectory`: the rows of a trajectory count once, with their mean reward, and share one advantage |
| group | rows compared with each other: `prompt`, `agent`, `turn`, joined by `+` |
| mean  | `group`: mean of the group; `others`: mean of the group without the row itself; `global`: mean of the prompt's trajectories |
| std   | `sample` (ddof 1) or `population` (ddof 0) deviation of the group; `global` or `global_population`: the same of the prompt's trajectories; `none`: no division |

A preset says how advantages are made, not how token losses are added up. Dr. GRPO as published also
divides by a constant: set `loss.aggregation: constant` beside `dr_grpo`.
"""  # noqa: E501

from __future__ import annotations

from typing import NamedTuple

UNITS = ("turn", "trajectory")
GROUP_KEYS = ("prompt", "agent", "turn")
MEANS = ("group", "others", "global")
STDS = ("sample", "population", "global", "global_population", "none")


class Preset(NamedTuple):
    """Which unit is counted, what is grouped, what is subtracted, what it is divided by."""

    unit: str
    group: str
    mean: str
    std: str


# fmt: off
PRESETS: dict[str, Preset] = {
    #                      unit          group           mean      std
    "grpo":        Preset("trajectory", "prompt",       "group",  "sample"),  # arXiv 2402.03300
    "drmas":       Preset("turn",       "prompt+agent", "group",  "sample"),  # arXiv 2602.08847
    "step_global": Preset("turn",       "prompt",       "group",  "sample"),  # turns, agents mixed
    "drmas_mean":  Preset("turn",       "prompt+agent", "group",  "global"),  # 2602.08847 ablation
    "drmas_std":   Preset("turn",       "prompt+agent", "global", "sample"),  # 2602.08847 ablation
    "dr_grpo":     Preset("trajectory", "prompt",       "group",  "none"),    # arXiv 2503.20783
    "rloo":        Preset("trajectory", "prompt",       "others", "none"),    # arXiv 2402.14740
}
# fmt: on
