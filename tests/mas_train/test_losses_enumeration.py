"""Gradients in expectation, exactly: every response over three tokens is enumerated.

A policy is a table of logits, one row per prefix. Token 2 ends a response, and so does the third
token. What a loss does on average is a finite sum, so "unbiased" is an equality.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from mas_train.advantages import advantages
from mas_train.config import CorrectionConfig, LossConfig
from mas_train.experience.kl_reward import kl_reward
from mas_train.losses import kl_penalty, surrogate

LENGTH, END = 3, 2


def responses(length):
    for size in range(1, length + 1):
        for tokens in itertools.product(range(3), repeat=size):
            if END not in tokens[:-1] and (tokens[-1] == END or size == length):
                yield tokens


class Tree:
    """All responses of at most `length` tokens as K tokens end to end: rows of one pack."""

    def __init__(self, length=LENGTH):
        self.responses = list(responses(length))
        prefixes = sorted({r[:t] for r in self.responses for t in range(len(r))})
        self.context = torch.tensor([prefixes.index(r[:t]) for r in self.responses
                                     for t in range(len(r))])  # fmt: skip
        self.token = torch.tensor([token for r in self.responses for token in r])
        lengths = torch.tensor([len(r) for r in self.responses])
        self.row = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        self.lengths, self.contexts = lengths.tolist(), len(prefixes)

    def policy(self, seed, scale=1.0):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(self.contexts, 3, generator=generator, dtype=torch.float64)
        return (scale * logits).requires_grad_()

    def log_probs(self, logits):
        return torch.log_softmax(logits, -1)[self.context, self.token]

    def log_prob(self, logits):
        """Of every response."""
        zeros = torch.zeros(len(self.responses), dtype=torch.float64)
        return zeros.index_add(0, self.row, self.log_probs(logits))

    def visits(self, logits):
        """How often each context is reached, [contexts]."""
        first = torch.zeros(self.contexts, dtype=torch.float64)
        p = self.log_prob(logits).exp()[self.row].detach()
        return first.index_add(0, self.context, p)


TREE = Tree()
REWARD = torch.linspace(-1.0, 2.0, len(TREE.responses), dtype=torch.float64).sin() * 3


def gradient(value, logits):
    return torch.autograd.grad(value, logits)[0]


def policy_gradient(tree, logits, reward):
    return gradient((tree.log_prob(logits).exp() * reward).sum(), logits)


def expected_gradient(tree, loss, logits, sampler, reward, old=None):
    """Over responses of `sampler`, of the summed token losses, as an ascent direction."""
    now, mu = tree.log_probs(logits), tree.log_probs(sampler).detach()
    before = now.detach() if old is None else tree.log_probs(old).detach()
    result = surrogate(loss, now, before, mu, reward[tree.row], tree.row)
    probability = tree.log_prob(sampler).exp().detach()
    return gradient(-(probability[tree.row] * result.loss).sum(), logits)


def close(a, b):
    return torch.allclose(a, b, rtol=0, atol=1e-13)


def test_the_enumeration_is_a_distribution():
    logits = TREE.policy(0)
    assert len(TREE.responses) == 15 and TREE.contexts == 7
    assert float(TREE.log_prob(logits).exp().sum().detach()) == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("name", ["reinforce", "ppo", "cispo", "gspo"])
def test_on_policy_every_surrogate_has_the_exact_policy_gradient(name):
    logits = TREE.policy(0)
    found = expected_gradient(TREE, LossConfig(surrogate=name), logits, logits, REWARD)
    assert close(found, policy_gradient(TREE, logits, REWARD))


@pytest.mark.parametrize("size", [2, 3])
def test_the_leave_one_out_baseline_keeps_it_unbiased(size):
    logits = TREE.policy(1)
    p = TREE.log_prob(logits).exp().detach().numpy()
    groups = np.array(list(itertools.product(range(len(p)), repeat=size)))
    members = groups.reshape(-1)
    group = np.repeat(np.arange(len(groups)), size)
    rewards = REWARD.numpy()[members]

    def expected(preset):
        args = (rewards, group, np.zeros(len(group), int), np.arange(len(group)))
        found = advantages(*args, preset=preset)
        weight = np.repeat(p[groups].prod(1), size) * found / size
        coefficient = torch.from_numpy(np.bincount(members, weights=weight, minlength=len(p)))
        now = TREE.log_probs(logits)
        loss = LossConfig(surrogate="reinforce")
        result = surrogate(loss, now, now.detach(), now.detach(), coefficient[TREE.row], TREE.row)
        return gradient(-result.loss.sum(), logits)

    exact = policy_gradient(TREE, logits, REWARD)
    assert close(expected("rloo"), exact)
    assert close(expected("dr_grpo"), exact * (size - 1) / size)  # the group's own mean shrinks it
    assert not torch.allclose(expected("grpo"), exact, atol=0.01)  # a deviation is not a constant


# --- off-policy -------------------------------------------------------------------------------


def corrected(tree, reward, surrogate_="ppo", name=None, **options):
    logits, sampler = tree.policy(2), tree.policy(3, 0.7)
    correction = CorrectionConfig(name=name, **options) if name else None
    loss = LossConfig(surrogate=surrogate_, correction=correction)
    return (
        expected_gradient(tree, loss, logits, sampler, reward),
        policy_gradient(tree, logits, reward),
    )


@pytest.mark.parametrize("options", [{"name": "seq_tis", "cap": 1e8},
                                     {"name": "seq_mis", "cap": 1e8, "floor": 0.0}])  # fmt: skip
@pytest.mark.parametrize("surrogate_", ["reinforce", "ppo", "gspo", "cispo"])
def test_sequence_weights_out_of_reach_of_their_bounds_are_exact(surrogate_, options):
    found, exact = corrected(TREE, REWARD, surrogate_, **options)
    assert close(found, exact)


@pytest.mark.parametrize(
    "options",
    [{}, {"name": "seq_tis", "cap": 1.1}, {"name": "seq_mis", "cap": 1.5},
     {"name": "tis", "cap": 1e8}, {"name": "mis", "cap": 1e8, "floor": 0.0},
     {"name": "geo_mis", "cap": 1e8, "floor": 0.0}],
)  # fmt: skip
def test_what_is_biased_on_responses_of_several_tokens(options):
    found, exact = corrected(TREE, REWARD, **options)
    assert not torch.allclose(found, exact, atol=0.01)


@pytest.mark.parametrize(
    "options",
    [{"name": "tis", "cap": 1e8}, {"name": "mis", "cap": 1e8, "floor": 0.0},
     {"name": "geo_mis", "cap": 1e8, "floor": 0.0}],
)  # fmt: skip
def test_token_weights_are_exact_on_responses_of_one_token(options):
    bandit = Tree(1)
    reward = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    found, exact = corrected(bandit, reward, **options)
    assert close(found, exact)
    assert not torch.allclose(corrected(bandit, reward)[0], exact, atol=0.01)


def test_bypass_corrects_through_the_ratio():
    """pi/mu inside the surrogate: exact where nothing clips, on responses of one token."""
    bandit = Tree(1)
    logits, sampler = bandit.policy(2), bandit.policy(3)
    reward = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    loss = LossConfig(clip_low=1.0, clip_high=1e8, dual_clip=None,
                      correction=CorrectionConfig(name="bypass"))  # fmt: skip
    found = expected_gradient(bandit, loss, logits, sampler, reward)
    assert close(found, policy_gradient(bandit, logits, reward))


def test_the_ratio_and_a_sequence_weight_together():
    """Later optimizer steps: pi/pi_old in the loss, pi_old/mu as the weight, one token."""
    bandit = Tree(1)
    logits, old, sampler = bandit.policy(2), bandit.policy(4), bandit.policy(3)
    reward = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    loss = LossConfig(clip_low=1.0, clip_high=1e8, dual_clip=None,
                      correction=CorrectionConfig(name="seq_tis", cap=1e8))  # fmt: skip
    found = expected_gradient(bandit, loss, logits, sampler, reward, old)
    assert close(found, policy_gradient(bandit, logits, reward))


def test_gspo_off_policy_is_the_gradient_of_its_expected_objective():
    logits, old = TREE.policy(2, 0.5), TREE.policy(2, 0.4)
    loss = LossConfig(surrogate="gspo", clip_low=0.02, clip_high=0.03)
    lengths = torch.tensor(TREE.lengths, dtype=torch.float64)
    ratio = ((TREE.log_prob(logits) - TREE.log_prob(old).detach()) / lengths).exp()
    value = torch.minimum(ratio * REWARD, ratio.clamp(0.98, 1.03) * REWARD)
    p = TREE.log_prob(old).exp().detach()
    expected = gradient((p * value).sum(), logits)
    now, before = TREE.log_probs(logits), TREE.log_probs(old).detach()
    result = surrogate(loss, now, before, before, REWARD[TREE.row], TREE.row)
    assert result.clipped.any() and not result.clipped.all()
    found = gradient(-((p / lengths)[TREE.row] * result.loss).sum(), logits)
    assert close(found, expected)


# --- KL ---------------------------------------------------------------------------------------


def penalty_gradient(tree, logits, reference, kind):
    now, ref = tree.log_probs(logits), tree.log_probs(reference).detach()
    p = tree.log_prob(logits).exp().detach()
    return gradient((p[tree.row] * kl_penalty(now, ref, kind)).sum(), logits)


def reward_gradient(tree, logits, reference, kind):
    """Ascent direction of the estimate taken as a reward."""
    ends = np.cumsum(tree.lengths)[:-1]
    own, ref = (np.split(tree.log_probs(x).detach().numpy(), ends) for x in (logits, reference))
    reward = torch.from_numpy(kl_reward(own, ref, kind))
    return expected_gradient(tree, LossConfig(surrogate="reinforce"), logits, logits, reward)


def kl(tree, logits, reference):
    difference = tree.log_prob(logits) - tree.log_prob(reference).detach()
    return (tree.log_prob(logits).exp() * difference).sum()


def kl_by_context(tree, logits, reference, reverse=False):
    """KL at each context, weighted with how often it is reached, and that held fixed."""
    p, q = torch.log_softmax(logits, -1), torch.log_softmax(reference.detach(), -1)
    each = (q.exp() * (q - p)).sum(-1) if reverse else (p.exp() * (p - q)).sum(-1)
    return (tree.visits(logits) * each).sum()


LOGITS, REFERENCE = TREE.policy(5), TREE.policy(6)


def test_k1_in_the_reward_has_the_gradient_of_the_kl_of_whole_responses():
    found = reward_gradient(TREE, LOGITS, REFERENCE, "k1")
    assert close(found, gradient(kl(TREE, LOGITS, REFERENCE), LOGITS))


def test_k1_in_the_loss_has_none():
    assert close(penalty_gradient(TREE, LOGITS, REFERENCE, "k1"), torch.zeros_like(LOGITS))


def test_k2_in_the_loss_has_the_gradient_of_the_kl_at_each_context():
    found = penalty_gradient(TREE, LOGITS, REFERENCE, "k2")
    assert close(found, gradient(kl_by_context(TREE, LOGITS, REFERENCE), LOGITS))
    whole = gradient(kl(TREE, LOGITS, REFERENCE), LOGITS)
    assert not torch.allclose(found, whole, atol=0.01)  # contexts reached are left out


def test_k3_in_the_loss_has_that_of_the_other_direction():
    found = penalty_gradient(TREE, LOGITS, REFERENCE, "k3")
    assert close(found, gradient(kl_by_context(TREE, LOGITS, REFERENCE, reverse=True), LOGITS))


def test_on_one_token_k2_in_the_loss_is_the_kl_and_k3_in_the_reward_is_biased():
    bandit = Tree(1)
    logits, reference = bandit.policy(5), bandit.policy(6)
    forward = gradient(kl(bandit, logits, reference), logits)
    reverse = gradient(kl_by_context(bandit, logits, reference, reverse=True), logits)
    assert close(penalty_gradient(bandit, logits, reference, "k2"), forward)
    assert close(reward_gradient(bandit, logits, reference, "k3"), forward - reverse)
    assert not torch.allclose(reverse, torch.zeros_like(reverse), atol=0.01)
