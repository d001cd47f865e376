"""Advantage estimators over rows: one function, one table of presets (no torch needed)."""

from mas_train.advantages.compose import EPS, advantages, check_choices
from mas_train.advantages.presets import PRESETS, Preset

__all__ = ["EPS", "PRESETS", "Preset", "advantages", "check_choices"]
