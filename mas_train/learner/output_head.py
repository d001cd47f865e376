"""From hidden states to log-probs and entropies, without the logits of more than one chunk.

With z = logits / T, p = softmax(z), token y and entropy H, the gradients per token are

    d log p_y / dz = 1[y] - p          dH / dz = -p (log p + H)

A single chunk keeps log p for them. Several chunks keep nothing: the backward computes the logits
of each chunk anew (a third more work in the head) and lets them go again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CHUNK_CPU, CHUNK = 2**22, 2**27
"""So many logits at a time: on a CPU what its caches hold, elsewhere what keeps the device busy."""

Apply = Callable[[Tensor], Tensor]


def score(
    head: torch.nn.Module,
    apply: Apply,
    hidden: Tensor,
    targets: Tensor,
    temperature: Tensor,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probs [K] of the `targets` [K] and entropies [K], float32 at least, from `hidden` [K, d].

    `head` maps [n, d] to logits [n, V] through `apply`, whatever kind of module it is; gradients
    reach its parameters. `temperature` [K] divides the logits.
    """
    temperature = temperature.to(_wide(hidden.dtype))
    size = chunk_size(head, hidden.device)
    if len(hidden) <= size:
        logits = apply(hidden)
        result = _FromLogits.apply(logits, targets, temperature, entropy_gradient)  # type: ignore[no-untyped-call]
    else:
        weights = _trained(head)
        result = _Chunked.apply(  # type: ignore[no-untyped-call]
            head, apply, size, entropy_gradient, hidden, targets, temperature, *weights
        )
    log_probs, entropy = result
    return log_probs, entropy


def chunk_size(head: Any, device: torch.device) -> int:
    """How many tokens' logits exist at a time."""
    vocabulary = getattr(head, "out_features", None) or len(head.weight)
    return max(1, int((CHUNK_CPU if device.type == "cpu" else CHUNK) // vocabulary))


def _trained(head: torch.nn.Module) -> list[Tensor]:
    return [weight for weight in head.parameters() if weight.requires_grad]


def _wide(kind: torch.dtype) -> torch.dtype:
    return torch.float32 if kind in (torch.bfloat16, torch.float16) else kind


def _distribution(logits: Tensor, temperature: Tensor, *, own: bool = False) -> Tensor:
    """log p [n, V]; with `own` the logits may be overwritten, which saves their memory."""
    wide = logits.to(temperature.dtype)
    scaled = wide.div_(temperature[:, None]) if own else wide / temperature[:, None]
    return scaled.log_softmax(-1)


def _observe(log_p: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """log p of the targets, and the entropy. [n]."""
    entropy = -torch.linalg.vecdot(log_p.exp(), log_p)
    return log_p.gather(-1, targets[:, None])[:, 0], entropy


def _logits_gradient(
    log_p: Tensor,
    targets: Tensor,
    temperature: Tensor,
    for_log_prob: Tensor,
    for_entropy: Tensor | None,
    *,
    own: bool = False,
) -> Tensor:
    """The gradient of the logits [n, V] from those of log-probs and (or None) entropies [n].

    With `own` log p may be overwritten.
    """
    p = log_p.exp_() if own and for_entropy is None else log_p.exp()
    share = (for_log_prob / temperature)[:, None]
    if for_entropy is None:
        gradient = p.mul_(-share)
    else:
        entropy = -torch.linalg.vecdot(p, log_p)[:, None]
        bonus = (for_entropy / temperature)[:, None]
        factor = log_p.add_(entropy) if own else log_p + entropy
        gradient = p.mul_(factor.mul_(-bonus).sub_(share))
    return gradient.scatter_add_(-1, targets[:, None], share)


class _FromLogits(torch.autograd.Function):
    """(logits [n, V], targets, temperature [n]) → log-probs, entropies [n]; keeps log p."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: Tensor, entropy_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        log_p = _distribution(logits, temperature)
        log_probs, entropy = _observe(log_p, targets)
        ctx.kind, ctx.with_entropy = logits.dtype, entropy_gradient
        ctx.save_for_backward(log_p, targets, temperature)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return log_probs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        log_p, targets, temperature = ctx.saved_tensors
        for_entropy = gradients[1] if ctx.with_entropy else None
        found = _logits_gradient(log_p, targets, temperature, gradients[0], for_entropy)
        return found.to(ctx.kind), None, None, None


class _Chunked(torch.autograd.Function):
    """The same from hidden states, `size` tokens at a time, keeping nothing of the logits.

    The head's trained weights are arguments so that autograd knows of them; the backward applies
    the head again, whose weights may by then be other objects (FSDP gathers them twice).
    """

    @staticmethod
    def forward(
        ctx: Any,
        head: torch.nn.Module,
        apply: Apply,
        size: int,
        entropy_gradient: bool,
        hidden: Tensor,
        targets: Tensor,
        temperature: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.head, ctx.logits, ctx.size, ctx.with_entropy = head, apply, size, entropy_gradient
        ctx.save_for_backward(hidden, targets, temperature)
        # Made first: a small tensor that outlives a chunk would lie in the space the chunk leaves,
        # and the next chunk would need new space.
        log_probs, entropy = torch.empty_like(temperature), torch.empty_like(temperature)
        columns = (hidden, targets, temperature, log_probs, entropy)
        for states, chosen, warmth, *into in _chunks(size, *columns):
            found = _observe(_distribution(apply(states), warmth, own=True), chosen)
            for column, values in zip(into, found, strict=True):
                column.copy_(values)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return log_probs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, targets, temperature = ctx.saved_tensors
        weights = _trained(ctx.head)
        for_weights: list[Tensor | None] = [None] * len(weights)
        for_hidden = torch.empty_like(hidden)
        columns = (hidden, targets, temperature, *gradients, for_hidden)
        for states, chosen, warmth, one, other, into in _chunks(ctx.size, *columns):
            states = states.detach().requires_grad_()
            with torch.enable_grad():
                logits = ctx.logits(states)
            log_p = _distribution(logits.detach(), warmth, own=logits.dtype != warmth.dtype)
            for_entropy = other if ctx.with_entropy else None
            found = _logits_gradient(log_p, chosen, warmth, one, for_entropy, own=True)
            found = found.to(logits.dtype)
            parts = torch.autograd.grad(logits, (states, *weights), found, allow_unused=True)
            into.copy_(parts[0])
            for i, part in enumerate(parts[1:]):
                for_weights[i] = _sum(for_weights[i], part)
            del logits, log_p, found, parts  # or they would lie beside the next chunk's
        return (None, None, None, None, for_hidden, None, None, *for_weights)


def _chunks(size: int, *columns: Tensor) -> Any:
    return zip(*(torch.split(column, size) for column in columns), strict=True)


def _sum(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    if total is None or part is None:
        return part if total is None else total
    return total.add_(part)
