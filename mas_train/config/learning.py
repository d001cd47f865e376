"""The sections about learning: advantages, the loss, the loop."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mas_train.config.section import AboveZero, NotNegative, Positive, Section, Share


class EstimatorConfig(Section):
    """A preset of `mas_train.advantages` and, where given, choices that override it.

    It leaves `loss.aggregation` alone: Dr. GRPO as published is preset `dr_grpo` with `constant`.
    `anchor_weight` is gigpo's ω; `decay` of rae's running means; `gamma` and `lam` are ppo's
    (per token); `alternatives` the members of a decision's group in `counterfactual`.
    """

    preset: str = "drmas"
    unit: str | None = None
    group: str | None = None
    mean: str | None = None
    std: str | None = None
    anchor_weight: NotNegative = 1.0
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.95
    gamma: Share = 1.0
    lam: Share = 1.0
    alternatives: Annotated[int, Field(ge=2)] = 4

    @model_validator(mode="after")
    def _known(self) -> EstimatorConfig:
        from mas_train.advantages import check_choices

        # Raises UnknownName for a preset or choice that does not exist.
        check_choices(self.preset, self.unit, self.group, self.mean, self.std)
        owners = {"anchor_weight": "gigpo", "decay": "rae", "gamma": "ppo", "lam": "ppo",
                  "alternatives": "counterfactual"}  # fmt: skip
        for key, owner in owners.items():
            if self.preset != owner:
                self.refuse_changed((key,), f"preset {self.preset!r}", owner)
        return self

    def choices(self) -> dict[str, Any]:
        """Keywords of `mas_train.advantages.advantages`."""
        return self.model_dump(include={"preset", "unit", "group", "mean", "std"})


class CorrectionConfig(Section):
    """How the mismatch of sampler μ and learner π_old is corrected; w = π_old/μ.

    `tis`: min(w, cap) per token; `seq_tis`: the same of the product over a turn; `mis`, `seq_mis`
    and `geo_mis` keep w of tokens, or of turns by the product or the geometric mean, within
    [floor, cap]; outside there is no gradient. `bypass` sets π_old := μ instead: the ratio of the
    surrogate corrects, and no second forward pass is needed.
    """

    name: Literal["tis", "seq_tis", "mis", "seq_mis", "geo_mis", "bypass"] = "tis"
    cap: AboveZero = 2.0
    floor: NotNegative = 0.5

    @model_validator(mode="after")
    def _own_keys(self) -> CorrectionConfig:
        if not self.name.endswith("mis"):
            self.refuse_changed(("floor",), f"correction {self.name!r}", "mis")
        if self.name == "bypass":
            self.refuse_changed(("cap",), "correction 'bypass'", "a correction that weighs")
        if self.name.endswith("mis") and self.floor >= self.cap:
            raise ValueError(f"correction floor {self.floor} is not below cap {self.cap}")
        return self


class KLConfig(Section):
    """β times an estimate of KL(π || reference), the weights the model started from.

    With log-ratio l = log π − log reference of a sampled token: `k1` l, `k2` l²/2, `k3` e⁻ˡ − 1 + l
    (Schulman, "Approximating KL divergence"). `place: reward` takes β Σ estimate from a turn's
    reward instead. The defaults have the right gradient on-policy: k2 in the loss (k1 has none
    there in expectation), k1 in the reward.
    """

    coefficient: AboveZero = 1e-3
    estimator: Literal["k1", "k2", "k3"] = "k2"
    place: Literal["loss", "reward"] = "loss"

    @model_validator(mode="after")
    def _right_gradient(self) -> KLConfig:
        if self.place == "reward" and "estimator" not in self.model_fields_set:
            self.estimator = "k1"
        return self


class ValueConfig(Section):
    """The value head of preset `ppo`: (V − return)²/2 in the loss, clipped around the old value."""

    coefficient: AboveZero = 0.5
    clip: AboveZero | None = 0.2


CLIPS = {"ppo": (0.2, 0.2), "gspo": (3e-4, 4e-4), "cispo": (1.0, 2.0), "reinforce": (0.0, 0.0)}
"""Default clip_low and clip_high of each surrogate."""


class LossConfig(Section):
    """The surrogate and how per-token losses are aggregated.

    `ppo` clips the ratio of each token, `gspo` that of the turn (arXiv 2507.18071), `cispo` only
    weights the log-probability with it (arXiv 2506.13585), `reinforce` has no ratio. The clips'
    defaults are the surrogate's (`CLIPS`). `entropy` times the mean entropy is added to the
    objective.
    """

    surrogate: Literal["ppo", "gspo", "cispo", "reinforce"] = "ppo"
    clip_low: Share = 0.2
    clip_high: NotNegative = 0.2
    dual_clip: Annotated[float, Field(gt=1)] | None = 3.0
    aggregation: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"] = (
        "token_mean"
    )
    entropy: Annotated[float, Field(ge=0)] = 0.0
    kl: KLConfig | None = None
    correction: CorrectionConfig | None = None
    value: ValueConfig | None = None

    @model_validator(mode="after")
    def _own_defaults(self) -> LossConfig:
        low, high = CLIPS[self.surrogate]
        given = self.model_fields_set
        self.clip_low = self.clip_low if "clip_low" in given else low
        self.clip_high = self.clip_high if "clip_high" in given else high
        if self.surrogate != "ppo" and "dual_clip" not in given:
            self.dual_clip = None
        elif self.surrogate not in ("ppo", "gspo") and self.dual_clip is not None:
            raise ValueError(f"surrogate {self.surrogate!r} has no dual clip; set dual_clip: null")
        bypassed = self.correction is not None and self.correction.name == "bypass"
        if self.surrogate == "reinforce" and bypassed:
            raise ValueError("surrogate 'reinforce' has no ratio that could correct: no 'bypass'")
        return self


class TrainConfig(Section):
    """The loop. `eval_every` 0 evaluates never, `checkpoint_every` counts steps.

    `token_budget` bounds the packed tokens of one micro-batch; it changes memory, not gradients.
    """

    steps: Positive = 200
    updates_per_step: Positive = 1
    max_grad_norm: AboveZero = 1.0
    token_budget: Positive = 16384
    checkpoint_every: Positive = 20
    keep_checkpoints: Positive = 2
    eval_every: Annotated[int, Field(ge=0)] = 10
    wandb: dict[str, Any] | None = None
