"""The learner: turns rows and their advantages into better weights of one model."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from transformers import PreTrainedModel

from mas_envs.errors import MasError
from mas_train.config import LossConfig, OptimizerConfig
from mas_train.experience.rows import Rows
from mas_train.learner.batch import Batch, PerToken, mini_batches, trainable
from mas_train.learner.log_probs import row_log_probs
from mas_train.learner.master_weights import MasterWeights
from mas_train.learner.objective import pack_loss
from mas_train.learner.offload import move_state
from mas_train.learner.packing import pack_rows, packed_attention
from mas_train.learner.schedule import lr_factor
from mas_train.learner.update_metrics import UpdateMetrics
from mas_train.learner.value_head import new_value_head, row_values

if TYPE_CHECKING:
    from mas_train.learner.sharded.shards import Shards

MAX_SKIPPED = 3
"""So many steps in a row may be skipped for a non-finite gradient; then it is an error."""


class NonFiniteGradient(MasError):
    """The gradient was NaN or infinite several times in a row: the model or the loss is broken."""


class Learner:
    """A model, its optimizer and its place in the schedule.

    `total_steps` optimizer steps are what a linear or cosine schedule decays over. `token_budget`
    bounds a micro-batch; it changes time and memory, never the gradient. `agent_norms` measures
    each role's gradient norm when a model serves several (one gradient buffer more). Dropout is
    set to 0: it would make the learner's log-probs differ from the sampler's. A half-precision
    model has its optimizer work on float32 copies of its weights. `value_head` adds one, for a loss
    with `value`. `sharded`: this process is one rank of the default process group and keeps its
    part only (`mas_train.learner.sharded`); every method is collective then.

    `version` counts calls of `update`; a rollout made with these weights carries it.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        optimizer: OptimizerConfig,
        *,
        total_steps: int | None = None,
        max_grad_norm: float = 1.0,
        token_budget: int = 2048,
        agent_norms: bool = True,
        value_head: bool = False,
        gradient_checkpointing: bool = False,
        sharded: bool = False,
    ) -> None:
        self.model = model.train()
        disable_dropout(model)
        if gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.value_head = new_value_head(model) if value_head else None
        self.shards = None
        if sharded:
            from mas_train.learner.sharded.shards import Shards

            self.shards = Shards(model, self.value_head)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.parameters += self.value_head.parameters() if self.value_head else []
        self.weights = MasterWeights(self.parameters)
        chosen = optimizer.model_dump(include={"lr", "betas", "eps", "weight_decay"})
        # PyTorch's default on a GPU holds the roots of all second moments, 4 bytes a parameter.
        self.optimizer = torch.optim.AdamW(self.weights.masters, fused=True, **chosen)
        self.settings, self.total_steps = optimizer, total_steps
        self.max_grad_norm, self.token_budget = max_grad_norm, token_budget
        self.agent_norms = agent_norms
        self.version = self.steps = self.skipped = 0
        self.learning_rate()  # a schedule that does not exist fails here, not at the first step

    def update(
        self,
        rows: Rows,
        advantages: ArrayLike | PerToken,
        loss: LossConfig,
        *,
        loss_weights: Mapping[str, float] | None = None,
        updates: int = 1,
        max_tokens: int | None = None,
        mask_cut: bool = False,
        **columns: PerToken | None,
    ) -> dict[str, float]:
        """Learn from one batch of experience, every row used once; returns its metrics.

        `advantages` [N] (or N arrays [T]) belong to `rows`; `loss_weights` (role or agent id →
        factor, default 1) multiply the weights of its tokens. With `updates` > 1 the trajectories
        are dealt to so many mini-batches, each an optimizer step, and pi_old is computed once
        before the first.
        `max_tokens` is L of aggregation `constant`. `columns` are the per-token ones of `Batch`
        that the loss needs: `reference_log_probs` for a KL, `values` and `returns` for a value
        head. Rows that are not known, rows without response tokens and, with `mask_cut`, rows cut
        off at the length limit are left out. Rows whose advantage is 0 count in every mean but are
        not computed where their gradient is 0.

        Metrics, over rows with an advantage: loss, grad_norm (before clipping), grad_norm/ROLE,
        entropy (nats per token), clip_fraction, kl (pi_old to pi, k3), ratio, mismatch (mean
        |log mu - log pi_old|), active_tokens; over all: tokens, rows; lr; skipped (optimizer steps
        not taken because the gradient was not finite). Without an active row, no means.

        Raises `UserError` for an advantage or sampler log-prob that is not finite, and
        `NonFiniteGradient` after `MAX_SKIPPED` skipped steps in a row.
        """
        batch = trainable(rows, advantages, mask_cut=mask_cut, **columns)
        only_advantage = not (loss.entropy or loss.value or (loss.kl and loss.kl.place == "loss"))
        roles = np.unique(batch.rows.agent).tolist()
        parts = [
            part.weighted(loss.aggregation, loss_weights or {}, max_tokens).active(
                by_advantage=only_advantage
            )
            for part in mini_batches(batch, updates)
        ]
        bypass = loss.correction is not None and loss.correction.name == "bypass"
        if updates > 1 and not bypass:
            parts = [replace(part, old_log_probs=self.log_probs(part.rows)) for part in parts]
        metrics = UpdateMetrics()
        for part in parts:
            self._step(part, roles, loss, metrics)
        if self.shards is not None:
            self.shards.add_up(metrics)
        self.version += 1
        return {
            **metrics.result(),
            "rows": float(len(batch.rows)),
            "tokens": float(sum(len(ids) for ids in batch.rows.ids)),
            "lr": self.learning_rate(),
        }

    def _step(
        self, batch: Batch, roles: list[str], loss: LossConfig, metrics: UpdateMetrics
    ) -> None:
        """One optimizer step on one mini-batch; none where no row has a gradient."""
        self._clear_gradients()
        by_role: dict[str, float] = {}
        if self.agent_norms and len(roles) > 1:
            total: list[Tensor] | None = None
            for role in roles:
                self._accumulate(batch.take(batch.rows.agent == role), loss, metrics)
                by_role[role] = self._grad_norm()
                total = self._move_gradients(total)
            for parameter, gradient in zip(self.parameters, total or [], strict=True):
                parameter.grad = gradient
        else:
            self._accumulate(batch, loss, metrics)
        norm = _number(torch.nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm))
        metrics.add_step(norm, by_role or ({roles[0]: norm} if len(roles) == 1 else {}))
        if len(batch.rows) == 0:
            pass  # a step without a signal would only follow the optimizer's momentum
        elif math.isfinite(norm):
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate()
            if self.settings.offload:
                move_state(self.optimizer, self.weights)
            self.weights.take_gradients()
            self.optimizer.step()
            self.weights.give_weights()
            if self.settings.offload:
                move_state(self.optimizer, self.weights, "cpu")
            self.steps += 1
            self.skipped = 0
        else:
            self._skip(metrics)
        self._clear_gradients()

    def _accumulate(self, batch: Batch, loss: LossConfig, metrics: UpdateMetrics) -> None:
        """Add the gradient of sum(weight x loss) over the tokens of the batch, pack by pack."""
        if self.shards is not None:
            self._accumulate_share(self.shards, batch, loss, metrics)
            return
        for pack in pack_rows(batch.rows, self.token_budget, self.parameters[0].device):
            found = pack_loss(self.model, self.value_head, pack, batch, loss)
            with packed_attention(self.model):  # checkpointed layers run again in here
                torch.autograd.backward(found.total)
            metrics.add_pack(found)

    def _accumulate_share(
        self, shards: Shards, batch: Batch, loss: LossConfig, metrics: UpdateMetrics
    ) -> None:
        """The same of this rank's packs; the gradients of all ranks are added up on the way."""
        for index, counts in shards.packs(batch.rows, self.token_budget):
            part = batch.take(index)
            if not counts:
                part = replace(part, weights=np.zeros_like(part.weights))
            (pack,) = pack_rows(part.rows, sys.maxsize, self.parameters[0].device)
            found = shards.run(partial(pack_loss, self.model, self.value_head, pack, part, loss))
            with packed_attention(self.model):
                torch.autograd.backward(found.total)
            if counts:
                metrics.add_pack(found)

    def _grad_norm(self) -> float:
        gradients = [g for p in self.parameters if (g := p.grad) is not None]
        return _number(torch.nn.utils.get_total_norm(gradients))

    def _move_gradients(self, total: list[Tensor] | None) -> list[Tensor]:
        """Empty the parameters' gradients into `total` (or into a new one)."""
        moved = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        self._clear_gradients()
        if total is not None:
            torch._foreach_add_(moved, total)
        return moved

    def _clear_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def _skip(self, metrics: UpdateMetrics) -> None:
        metrics.skipped += 1
        self.skipped += 1
        if self.skipped >= MAX_SKIPPED:
            raise NonFiniteGradient(
                f"the gradient was not finite {self.skipped} times in a row (after {self.steps} "
                "optimizer steps); resume from an earlier checkpoint with a lower learning rate"
            )

    def log_probs(self, rows: Rows) -> list[Any]:
        """Of every response under the present weights: N arrays [T], in nats."""
        if self.shards is None:
            return row_log_probs(self.model, rows, self.token_budget)
        look = partial(row_log_probs, self.model, budget=sys.maxsize)
        return self.shards.per_row(rows, self.token_budget, look)

    def row_values(self, rows: Rows) -> list[Any]:
        """The value head's estimate before each response token: N arrays [T]."""
        assert self.value_head is not None
        if self.shards is None:
            return row_values(self.model, self.value_head, rows, self.token_budget)
        look = partial(row_values, self.model, self.value_head, budget=sys.maxsize)
        return self.shards.per_row(rows, self.token_budget, look)

    def learning_rate(self) -> float:
        """Of the next optimizer step."""
        kind, warmup = self.settings.schedule, self.settings.warmup_steps
        return float(self.settings.lr) * lr_factor(self.steps, kind, warmup, self.total_steps)

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact resume needs: weights, optimizer state, counters (live tensors)."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "masters": self.weights.state() if self.shards is None else self.shards.state(),
            "value_head": self.value_head.state_dict() if self.value_head else {},
            "version": self.version,
            "steps": self.steps,
            "skipped": self.skipped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`; where the settings have changed, the learner's own hold."""
        self.model.load_state_dict(state["model"])
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({**state["optimizer"], "param_groups": groups})
        if self.value_head is not None:
            self.value_head.load_state_dict(state["value_head"])
        holder = self.weights if self.shards is None else self.shards
        holder.load(state.get("masters", ()))
        self.version, self.steps = int(state["version"]), int(state["steps"])
        self.skipped = int(state["skipped"])


def _number(norm: Tensor) -> float:
    """A norm as a number; one that is cut over ranks must be put together first."""
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def disable_dropout(model: torch.nn.Module) -> None:
    """Set every dropout probability to 0: of modules, and of attention layers' attributes."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name in ("attention_dropout", "hidden_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
