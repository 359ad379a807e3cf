"""Losses, masks and corrections beyond OpenRLHF's: worked numbers, and TRL's own trainer as the reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rlf.algo.corrections import correction_weights, high_entropy
from rlf.algo.loss_config import OffPolicyCorrection, PolicyLossConfig
from rlf.algo.losses import aggregate_loss, loss_denominator, policy_loss

from .test_losses import close, logs, loss_of, random_inputs, row
from .trl_reference import trl_loss


def test_cispo_weighs_the_log_probability_by_the_clipped_ratio_and_keeps_every_gradient() -> None:
    # ratios 1.5, .5 with old .4: weights clip(1.5, .8, 1.2) = 1.2 and clip(.5, .8, 1.2) = .8, A = 1, -1:
    # -(1.2 * 1 * log .6) and -(.8 * -1 * log .2), their mean; the gradient is -w A / 2
    logprobs = logs(0.6, 0.2).requires_grad_()
    out = loss_of(logprobs, logs(0.4, 0.4), row(1, -1), kind="cispo", clip_low=0.2, clip_high=0.2)
    assert out.loss.item() == pytest.approx((-1.2 * math.log(0.6) + 0.8 * math.log(0.2)) / 2)
    out.loss.backward()
    close(logprobs.grad, row(-0.6, 0.4))
    assert out.clip_fraction.item() == 1.0


def test_cispo_has_no_lower_bound_and_an_upper_one_of_five_unless_told() -> None:
    config = PolicyLossConfig(kind="cispo")
    assert (1 - config.clip_low, 1 + config.clip_high) == (0.0, 5.0)
    assert PolicyLossConfig(kind="cispo", clip_high=0.3).clip_high == 0.3


def test_sapo_gates_the_ratio_smoothly_and_negative_advantages_more_steeply() -> None:
    # ratio 1.5: sigmoid(1 * .5) 4 / 1 * A for A = 1; for A = -2, sigmoid(1.05 * .5) 4 / 1.05 * A; one row: their mean
    out = loss_of(logs(0.6, 0.6), logs(0.4, 0.4), row(1, -2), kind="sapo")
    up, down = 4 / (1 + math.exp(-0.5)), 4 / 1.05 / (1 + math.exp(-0.525))
    assert out.loss.item() == pytest.approx((-up + 2 * down) / 2)


def test_gpg_is_the_plain_policy_gradient() -> None:
    # -(1 * log .6 - 2 * log .2) / 2, whatever the old probabilities
    out = loss_of(logs(0.6, 0.2), logs(0.1, 0.9), row(1, -2), kind="gpg")
    assert out.loss.item() == pytest.approx(-(math.log(0.6) - 2 * math.log(0.2)) / 2)


def test_a_constant_length_divides_every_sequence_by_the_same() -> None:
    # sums 3 and 6 of two sequences, the third has no token: (3 + 6) / (2 * 10)
    values = torch.tensor([[1.0, 2.0, 9.0], [6.0, 9.0, 9.0], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.bool)
    config = PolicyLossConfig(aggregation="constant_length", length=10)
    assert loss_denominator(mask, config.aggregation, config.length) == 20
    assert aggregate_loss(values, mask, config.aggregation, length=10).item() == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("correction", "weights"),
    [
        # trainer / sampler: 2 and 3 in row one (product 6), .5 and .5 in row two (product .25)
        ({"level": "seq_product", "mode": "clip", "threshold": (0.5, 4.0)}, [[4, 4], [0.5, 0.5]]),
        ({"level": "seq_product", "mode": "mask", "threshold": (0.1, 4.0)}, [[0, 0], [0.25, 0.25]]),
        ({"level": "seq", "mode": "clip", "threshold": (0.6, 2.0)}, [[2, 2], [0.6, 0.6]]),  # sqrt(6), .5
    ],
)
def test_importance_weights_are_truncated_by_sequence(correction: dict[str, Any], weights: list[list[float]]) -> None:
    old = torch.tensor([[0.4, 0.6], [0.2, 0.1]], dtype=torch.float64).log()
    rollout = torch.tensor([[0.2, 0.2], [0.4, 0.2]], dtype=torch.float64).log()
    out = loss_of(old.clone(), old, torch.ones_like(old), rollout, correction=correction)
    assert out.loss.item() == pytest.approx(-sum(map(sum, weights)) / 4)


def test_the_off_policy_mask_drops_bad_sequences_that_the_policy_has_left() -> None:
    # mean log(mu / pi) = log 2 = .69 in all rows: above .5 where A < 0 the row has no loss; it stays in the mean
    logprobs, old = logs(0.2, 0.2).repeat(3, 1), logs(0.4, 0.4).repeat(3, 1)
    advantages = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]], dtype=torch.float64)
    out = loss_of(logprobs, old, advantages, kind="gpg", off_policy_mask=0.5)
    assert out.loss.item() == pytest.approx(-2 * math.log(0.2) / 6)
    assert out.masked_fraction is not None and out.masked_fraction.item() == pytest.approx(1 / 3)
    kept = loss_of(logprobs, old, advantages, kind="gpg", off_policy_mask=0.7)
    assert kept.masked_fraction is not None and kept.masked_fraction.item() == 0


def test_ipos_mask_drops_tokens_whose_probability_moved_whatever_their_advantage() -> None:
    # |.6 - .2| = .4 and |.1 - .5| = .4 are above .3; .05 against .3 is a ratio of 6 and stays
    logprobs, rollout = logs(0.6, 0.1, 0.3), logs(0.2, 0.5, 0.05)
    out = loss_of(logprobs, logprobs.clone(), row(1, -1, 1), rollout, kind="gpg", probability_mask=0.3)
    assert out.loss.item() == pytest.approx(-math.log(0.3) / 3)


def test_ipo_is_ppo_without_a_clip_corrected_token_by_token_under_the_mask() -> None:
    # prime-rl without its KL term: -sum_t [|pi - mu| <= eps] A pi / mu / N
    logprobs, old, rollout, advantages, mask = random_inputs(3)
    ours_in, plain_in = (logprobs.clone().requires_grad_() for _ in range(2))
    correction = {"level": "token", "threshold": (0.0, 1e9)}
    config = PolicyLossConfig(clip_low=1.0, clip_high=1e6, correction=correction, probability_mask=0.2)
    policy_loss(ours_in, old, advantages, mask, config=config, rollout_logprobs_BT=rollout).loss.backward()
    keep = mask & ((plain_in.exp() - rollout.exp()).abs() <= 0.2)
    (-(keep * advantages * (plain_in - rollout).exp()).sum() / mask.sum()).backward()
    close(ours_in.grad, plain_in.grad)


def test_dppos_mask_drops_tokens_that_moved_the_way_that_their_advantage_pushes() -> None:
    # pi - mu = .4, -.4, .4, -.4 with A = 1, 1, -1, -1: the first has gone up far enough and the last down, the two
    # others move back
    logprobs, rollout = logs(0.6, 0.1, 0.6, 0.1), logs(0.2, 0.5, 0.2, 0.5)
    out = loss_of(logprobs, logprobs.clone(), row(1, 1, -1, -1), rollout, kind="gpg", dppo_mask=0.3)
    assert out.loss.item() == pytest.approx(-(math.log(0.1) - math.log(0.6)) / 4)
    assert out.masked_fraction is not None and out.masked_fraction.item() == 0.5
    wide = loss_of(logprobs, logprobs.clone(), row(1, 1, -1, -1), rollout, kind="gpg", dppo_mask=0.5)
    assert wide.masked_fraction is not None and wide.masked_fraction.item() == 0


@pytest.mark.parametrize("seed", range(3))
def test_dppos_mask_is_the_two_sided_rule_written_out(seed: int) -> None:
    # invalid where pi > mu + delta under a positive advantage, or pi < mu - delta under a negative one, in numpy
    logprobs, old, rollout, advantages, mask = random_inputs(seed)
    ours_in = logprobs.clone().requires_grad_()
    config = PolicyLossConfig(kind="gpg", dppo_mask=0.05)
    out = policy_loss(ours_in, old, advantages, mask, config=config, rollout_logprobs_BT=rollout)
    out.loss.backward()
    pi, mu, a, m = (each.detach().numpy() for each in (logprobs.exp(), rollout.exp(), advantages, mask))
    invalid = ((a > 0) & (pi > mu + 0.05)) | ((a < 0) & (pi < mu - 0.05))
    assert 0 < (invalid & m).sum() < m.sum()
    expected = np.where(m & ~invalid, -a, 0.0) / m.sum()
    assert ours_in.grad is not None
    np.testing.assert_allclose(ours_in.grad.numpy(), expected, atol=1e-12)


def test_the_share_of_highest_entropy_is_of_the_whole_batch() -> None:
    # five masked entropies 1 .. 5, share .4: quantile .6 of them is 3.4, so 4 and 5 stay
    entropy = torch.tensor([[1.0, 5.0, 99.0], [3.0, 4.0, 2.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]], dtype=torch.bool)
    assert high_entropy(entropy, mask, 0.4).tolist() == [[False, True, False], [False, True, False]]
    assert high_entropy(entropy, mask & False, 0.4).any().item() is False


CISPO, SEQUENCE = {"loss_type": "cispo", "epsilon_high": 5.0}, {"importance_sampling_level": "sequence"}
TRL_LOSSES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"kind": "cispo", "clip_high": 0.5}, {"loss_type": "cispo", "epsilon_high": 1.5}),
    ({"kind": "sapo", "tau_pos": 0.7}, {"loss_type": "sapo", "sapo_temperature_pos": 0.7}),
    ({"aggregation": "constant_length", "length": 7}, {"loss_type": "dr_grpo", "max_completion_length": 7}),
    ({"off_policy_mask": 0.05}, {"off_policy_mask_threshold": 0.05}),
    ({"top_entropy": 0.3}, {"top_entropy_quantile": 0.3}),
    ({"kind": "cispo", "off_policy_mask": 0.1}, {**CISPO, "off_policy_mask_threshold": 0.1}),
    ({"kind": "gspo", "off_policy_mask": 0.1}, {**SEQUENCE, "loss_type": "grpo", "off_policy_mask_threshold": 0.1}),
]


@pytest.mark.parametrize(("fields", "theirs"), TRL_LOSSES)
def test_the_loss_and_its_gradient_are_trls(fields: dict[str, Any], theirs: dict[str, Any]) -> None:
    for seed in range(3):
        logprobs, old, rollout, advantages, mask = random_inputs(seed)
        advantages_B = advantages[:, 0]
        entropy = torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed)).double()
        ours_in, theirs_in = (logprobs.clone().requires_grad_() for _ in range(2))
        config = PolicyLossConfig(**fields)
        ours = policy_loss(
            ours_in,
            old,
            advantages_B[:, None].expand_as(old),
            mask,
            config=config,
            rollout_logprobs_BT=rollout,
            high_entropy_BT=high_entropy(entropy, mask, config.top_entropy),
        ).loss
        reference = trl_loss(theirs_in, old, rollout, advantages_B, mask, entropy, **theirs)
        ours.backward()
        reference.backward()
        close(ours, reference)
        close(ours_in.grad, theirs_in.grad)


@pytest.mark.parametrize(("mode", "theirs"), [("clip", "sequence_truncate"), ("mask", "sequence_mask")])
def test_sequence_weights_are_trls_formula(mode: str, theirs: str) -> None:
    # TRL: exp(sum_t (old - sampler)), clamped to [min, max] or 0 outside; times the loss of each token
    for seed in range(3):
        logprobs, old, rollout, advantages, mask = random_inputs(seed)
        weight = ((old - rollout) * mask).sum(1, keepdim=True).exp()
        weight = weight.clamp(0.5, 3.0) if mode == "clip" else weight.where((weight >= 0.5) & (weight <= 3.0), 0.0)
        ratio = (logprobs - old).exp()
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        correction = {"level": "seq_product", "mode": mode, "threshold": (0.5, 3.0)}
        config = PolicyLossConfig(correction=correction)
        ours = policy_loss(logprobs, old, advantages, mask, config=config, rollout_logprobs_BT=rollout)
        close(ours.loss, (weight * loss * mask).sum() / mask.sum())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"aggregation": "constant_length"}, "write e.g. `length: 512`"),
        ({"length": 5}, "remove it"),
        ({"kind": "cispo", "dual_clip": 2.0}, "remove dual_clip"),
    ],
)
def test_settings_that_mean_nothing_together_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PolicyLossConfig(**fields)


@pytest.mark.parametrize("kind", ["ppo", "gspo", "cispo", "sapo", "gpg"])
def test_a_stored_loss_reads_back_as_it_is(kind: str) -> None:
    config = PolicyLossConfig(kind=kind)
    assert PolicyLossConfig(**config.model_dump()) == config


def test_a_gate_of_kl_keeps_tokens_whose_probabilities_differ_by_rounding_alone() -> None:
    old = -3 * torch.rand(1, 2000, generator=torch.Generator().manual_seed(0))
    rollout = old + 1e-6 * torch.randn(1, 2000, generator=torch.Generator().manual_seed(1))
    for level in ("token", "seq"):
        correction = OffPolicyCorrection(level=level, gating="binary_kl", threshold=(0.0, 0.1))
        _, filtered = correction_weights(old, rollout, torch.ones_like(old, dtype=torch.bool), correction)
        assert filtered.item() == 0


def test_a_sapo_of_doubles_is_exact() -> None:
    out = loss_of(logs(0.6), logs(0.4), row(-1), kind="sapo")
    assert out.loss.item() == pytest.approx(4 / 1.05 / (1 + math.exp(-1.05 * 0.5)), rel=1e-14)


@pytest.mark.parametrize(("mode", "weight"), [("clip", 4.0), ("mask", 0.0)])
def test_gspo_is_weighed_by_truncated_sequences_as_trl_does(mode: str, weight: float) -> None:
    # trainer / sampler 2 and 3, so 6 of the sequence, above 4; rho is 1, as old is the current policy
    old, rollout = logs(0.4, 0.6), logs(0.2, 0.2)
    correction = {"level": "seq_product", "mode": mode, "threshold": (0.5, 4.0)}
    out = loss_of(old.clone(), old, row(1, 1), rollout, kind="gspo", correction=correction)
    assert out.loss.item() == pytest.approx(-weight)


def test_a_threshold_that_nothing_passes_is_refused() -> None:
    with pytest.raises(ValueError, match="excludes every token"):
        OffPolicyCorrection(level="token", threshold=(-5, -1))
