"""Distillation: worked numbers, and the gradient of the exact divergence in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rlf.algo.advantages.distillation import Distillation
from rlf.algo.loss_config import PolicyLossConfig
from rlf.algo.losses import policy_loss
from rlf.core.errors import RlfError

from .test_advantages import assert_equal, batch_of

NAN = math.nan


def said(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_a_token_is_worth_how_much_likelier_the_teacher_finds_it() -> None:
    # -1 - -3 = 2; an observation; -9 - -1 = -8, cut at -5; the second row has no teacher
    batch = batch_of(
        [0.0, 1.0], [0, 0], [[1, 0, 1], [1, 1, 1]],
        old_logprobs_BT=said([[-3, NAN, -1], [-1, -1, -1]]), teacher_logprobs_BT=said([[-1, -1, -9], [NAN] * 3]),
    )  # fmt: skip
    output = Distillation(failures=True).advantages(batch)
    assert_equal(output.advantages_BT, [[2, 0, -5], [0, 0, 0]])
    assert_equal(Distillation(clip=1).advantages(batch).advantages_BT, [[1, 0, -1], [0, 0, 0]])


def test_a_teacher_that_excludes_a_token_is_as_far_as_the_bound() -> None:
    batch = batch_of([0.0], [0], [[1]], old_logprobs_BT=said([[-1]]), teacher_logprobs_BT=said([[-math.inf]]))
    assert_equal(Distillation().advantages(batch).advantages_BT, [[-5]])


def test_rewards_change_nothing_so_that_a_group_that_fails_throughout_is_taught() -> None:
    tensors = {"old_logprobs_BT": said([[-2], [-1]]), "teacher_logprobs_BT": said([[-1], [-2]])}
    for rewards in ([0.0, 0.0], [1.0, 0.0]):
        batch = batch_of(rewards, [0, 0], [[1], [1]], **tensors)
        assert_equal(Distillation().advantages(batch).advantages_BT, [[1], [-1]])


def test_the_loss_has_the_gradient_of_the_reverse_divergence() -> None:
    """Every token once, each weighted by its probability, is the expectation over samples."""
    generator = np.random.default_rng(3)
    logits, theirs = generator.normal(size=6), generator.normal(size=6)
    p, q = (np.exp(x) / np.exp(x).sum() for x in (logits, theirs))
    # d/dz_k sum_v p_v log(p_v / q_v) = p_k (log(p_k / q_k) - KL), since the derivative of sum p is 0
    kl = (p * np.log(p / q)).sum()
    expected = p * (np.log(p / q) - kl)
    free = torch.tensor(logits, requires_grad=True)
    logprobs_BT = free.log_softmax(0).unsqueeze(1)
    batch = batch_of(
        [0.0] * 6, [0] * 6, [[1]] * 6, old_logprobs_BT=logprobs_BT.detach(),
        teacher_logprobs_BT=torch.tensor(np.log(q)).unsqueeze(1),
    )  # fmt: skip
    advantages_BT = Distillation(clip=100).advantages(batch).advantages_BT * torch.tensor(p).unsqueeze(1)
    mask_BT = torch.ones(6, 1, dtype=torch.bool)
    result = policy_loss(
        logprobs_BT, logprobs_BT.detach(), advantages_BT, mask_BT, config=PolicyLossConfig(), denominator=1.0
    )
    result.loss.backward()
    assert free.grad is not None
    np.testing.assert_allclose(free.grad.numpy(), expected, atol=1e-12)


def test_a_policy_that_would_see_nothing_new_is_no_teacher() -> None:
    assert Distillation().shows_failures
    assert not Distillation(teacher="m").shows_failures
    assert not Distillation(demonstrations="d.jsonl").shows_failures
    assert Distillation(teacher="m", failures=True).shows_failures
    with pytest.raises((ValidationError, RlfError), match="see nothing new"):
        Distillation(failures=False)
