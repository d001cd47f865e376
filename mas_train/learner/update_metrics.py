"""Sums gathered during one update of a learner, and the metrics made of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from mas_train.learner.objective import PackLoss


class UpdateMetrics:
    """Token sums over all packs and gradient norms of all optimizer steps of one update."""

    def __init__(self) -> None:
        self.sums: defaultdict[str, float] = defaultdict(float)
        self.grad_norms: defaultdict[str, list[float]] = defaultdict(list)
        self.loss = 0.0
        self.tokens = self.skipped = 0

    def add_pack(self, found: PackLoss) -> None:
        """One pack: its weighted loss, and observations of its K tokens."""
        self.loss += float(found.total.detach())
        self.tokens += len(found.surrogate.ratio)
        observed = {
            "clip_fraction": found.surrogate.clipped,
            "kl": found.surrogate.kl,
            "ratio": found.surrogate.ratio,
            **found.observed,
        }
        for name, values in observed.items():
            self.sums[name] += float(values.sum())

    def add_step(self, norm: float, by_role: Mapping[str, float]) -> None:
        """One optimizer step: the gradient norm before clipping, in all and of each role."""
        self.grad_norms["grad_norm"].append(norm)
        for role, value in by_role.items():
            self.grad_norms[f"grad_norm/{role}"].append(value)

    def result(self) -> dict[str, float]:
        """Means over tokens and over optimizer steps; without tokens no means."""
        counts = {"active_tokens": float(self.tokens), "skipped": float(self.skipped)}
        norms = {name: sum(values) / len(values) for name, values in self.grad_norms.items()}
        if not self.tokens:
            return {**norms, **counts}
        means = {name: total / self.tokens for name, total in self.sums.items()}
        return {"loss": self.loss / len(self.grad_norms["grad_norm"]), **norms, **means, **counts}
