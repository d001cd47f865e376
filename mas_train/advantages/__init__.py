"""Advantage estimators over rows: one function and one table of presets (no torch needed).

advantages(rewards, prompt, agent, trajectory, turn, preset="drmas")    # [N]
counterfactual(rewards, decision)                                       # [N]
gae(rewards, values, lengths)                                           # per token [K], [K]
"""

from mas_train.advantages.anchors import anchors
from mas_train.advantages.compose import EPS, advantages
from mas_train.advantages.counterfactual import counterfactual
from mas_train.advantages.gae import gae, whiten
from mas_train.advantages.presets import PRESETS, SEPARATE, Preset, check_choices, needs

__all__ = [
    "EPS",
    "PRESETS",
    "SEPARATE",
    "Preset",
    "advantages",
    "anchors",
    "check_choices",
    "counterfactual",
    "gae",
    "needs",
    "whiten",
]
