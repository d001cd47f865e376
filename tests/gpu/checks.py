"""Checks of single parts on the device: attention, log-probs, offload, one rank of FSDP."""

import copy
from functools import partial

import numpy as np
import torch

from mas_train.config import LossConfig, OptimizerConfig
from mas_train.engines.hf_model import load_pretrained
from mas_train.experience.rows import Rows
from mas_train.learner.learner import Learner
from mas_train.learner.log_probs import row_log_probs, token_log_probs
from mas_train.learner.master_weights import MasterWeights
from mas_train.learner.offload import move_state
from mas_train.learner.packing import attention, pack_rows, packed_attention
from mas_train.learner.sharded.learner import ShardedLearner, load_model
from mas_train.trained_model import PROBE_TOLERANCE
from tests.gpu.random_model import word_ids

BUDGET = 2048
WORSE = 1.5
"""So many times the error of the plain way (against float32) may ours have."""


def made_rows(tokenizer, count, longest):
    """Rows of words, prompts of 16 and responses of log-normal length; and an advantage each."""
    rng = np.random.default_rng(0)
    words = word_ids(tokenizer).numpy().astype(np.int32)
    lengths = np.clip(rng.lognormal(np.log(longest / 8), 0.8, count).round(), 8, longest)
    ids = [rng.choice(words, int(length)) for length in lengths]
    rows = Rows(
        reward=np.zeros(count),
        prompt=np.arange(count) // 8,
        agent=np.full(count, "solver"),
        agent_id=np.full(count, "solver_0"),
        trajectory=np.arange(count),
        turn=np.zeros(count, np.int64),
        known=np.ones(count, np.bool_),
        cut=np.zeros(count, np.bool_),
        event=np.zeros(count, np.int64),
        temperature=np.ones(count),
        prompt_ids=list(rng.choice(words, (count, 16))),
        ids=ids,
        log_probs=[np.full(len(one), -3.0, np.float32) for one in ids],
    )
    return rows, rng.normal(size=count)


def loaded(folder, device, dtype):
    model, _ = load_pretrained(folder, dtype)
    return torch.nn.Module.to(model, device)


def widened(folder, device):
    """The bfloat16 weights, computed with in float32."""
    return loaded(folder, device, "bfloat16").float()


def gradients(model, rows, advantages):
    """Of the advantage-weighted log-probs, by parameter; in float32, on the model's device."""
    model.zero_grad()
    for pack in pack_rows(rows, BUDGET, model.device):
        warmth = torch.ones(len(pack.row), device=model.device)
        weight = torch.as_tensor(advantages[pack.row], device=model.device).float()
        found = token_log_probs(model, pack, warmth).log_probs
        with packed_attention(model):
            (found * weight).sum().backward()
    return [p.grad.float() for p in model.parameters() if p.grad is not None]


def distance(ones, others):
    """|a - b| / |b| over all parameters."""
    apart = sum(float((a - b).square().sum()) for a, b in zip(ones, others, strict=True))
    return (apart / sum(float(b.square().sum()) for b in others)) ** 0.5


def check_attention(report, folder, device, rows, advantages):
    """Gradients in bfloat16 through varlen attention and through SDPA, against float32."""
    exact = gradients(widened(folder, device), rows, advantages)
    model = loaded(folder, device, "bfloat16").train()
    ours = distance(gradients(model, rows, advantages), exact)
    half, attention.HALF = attention.HALF, ()
    try:
        plain = distance(gradients(model, rows, advantages), exact)
    finally:
        attention.HALF = half
    report.add("gradient in bfloat16 by SDPA, error", f"{plain:.2%}")
    report.limit("gradient by packed attention, error %", 100 * ours, 100 * (WORSE * plain + 0.005))


@torch.no_grad()
def plain_log_probs(model, rows):
    """One row after the other, through transformers' own forward: all tokens of all rows."""
    found = []
    for prompt, ids in zip(rows.prompt_ids, rows.ids, strict=True):
        text = torch.as_tensor(np.r_[prompt, ids], device=model.device, dtype=torch.long)
        logits = model(input_ids=text[None], use_cache=False).logits[0, len(prompt) - 1 : -1]
        table = logits.float().log_softmax(-1)
        found.append(table.gather(1, text[len(prompt) :, None])[:, 0].cpu().numpy())
    return np.concatenate(found)


def check_log_probs(report, folder, device, rows):
    wide, half = widened(folder, device), loaded(folder, device, "bfloat16")
    exact = plain_log_probs(wide, rows)
    packed = np.concatenate(row_log_probs(wide, rows, BUDGET))
    report.limit(
        "packed log-probs in float32, mean difference", np.abs(packed - exact).mean(),
        PROBE_TOLERANCE["float32"], " nats",
    )  # fmt: skip
    ours = np.abs(np.concatenate(row_log_probs(half, rows, BUDGET)) - exact).mean()
    plain = np.abs(plain_log_probs(half, rows) - exact).mean()
    report.add("transformers' log-probs in bfloat16, mean error", f"{plain:.3g} nats")
    report.limit("packed log-probs in bfloat16, mean error", ours, WORSE * plain + 2e-3, " nats")


def check_offload(report, folder, device):
    """Three steps on the same gradients with and without: equal bits, and the state is away."""
    model = loaded(folder, device, "bfloat16")
    plain, moved = list(model.parameters()), list(copy.deepcopy(model).parameters())
    sides = []
    for parameters in (plain, moved):
        weights = MasterWeights(parameters)
        sides.append((parameters, weights, torch.optim.AdamW(weights.masters, lr=1e-3)))
    for step in range(3):
        for parameters, weights, optimizer in sides:
            generator = torch.Generator(device).manual_seed(step)
            for p in parameters:
                p.grad = torch.randn(p.shape, generator=generator, device=device).to(p.dtype)
            if parameters is moved:
                move_state(optimizer, weights)
            weights.take_gradients()
            optimizer.step()
            weights.give_weights()
            if parameters is moved:
                move_state(optimizer, weights, "cpu")
    same = all(torch.equal(a, b) for a, b in zip(plain, moved, strict=True))
    _, weights, optimizer = sides[1]
    state = [x for one in optimizer.state.values() for x in one.values() if x.ndim]
    away = all(x.device.type == "cpu" for x in [*state, *weights.state()])
    size = sum(x.nbytes for x in [*state, *weights.state()])
    problem = "" if same else "weights differ from those without it"
    report.add(
        "optimizer offload", f"{size / 1e9:.3g} GB", problem or ("" if away else "not on the CPU")
    )


def check_sharded(report, folder, device, rows, advantages):
    """One rank (nccl on a GPU, gloo on a CPU) takes the step that a plain learner takes."""
    settings, options = OptimizerConfig(lr=1e-5), {"token_budget": BUDGET}
    plain = Learner(loaded(folder, device, "bfloat16"), settings, **options)
    ours = plain.update(rows, advantages, LossConfig())["grad_norm"]
    del plain
    make = partial(load_model, str(folder), "bfloat16", "main")
    sharded = ShardedLearner("solver", make, settings, devices=1, **options)
    try:
        theirs = sharded.update(rows, advantages, LossConfig())["grad_norm"]
    finally:
        sharded.close()
    report.add("gradient norm of a plain learner", f"{ours:.4g}")
    report.limit("FSDP with one rank: its gradient norm is off by", abs(theirs / ours - 1), 0.02)
