"""The pure metrics, under the name papers look for (they live beside the episodes)."""

from mas_envs.episodes.interval import interval
from mas_envs.episodes.metrics import Score, avg_at_k, pass_at_k, pass_curve, score, summary

__all__ = ["Score", "avg_at_k", "interval", "pass_at_k", "pass_curve", "score", "summary"]
