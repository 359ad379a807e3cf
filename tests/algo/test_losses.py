"""Policy and value loss: worked numbers, parity with OpenRLHF, exactness over micro-batches, holes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rlf.algo.loss_config import Aggregation, OffPolicyCorrection, PolicyLossConfig, PolicyLossKind
from rlf.algo.losses import PolicyLossOutput, aggregate_loss, loss_denominator, policy_loss, value_loss

from .batches import random_mask
from .openrlhf_reference import openrlhf

TOKEN_MEAN, SEQ_MEAN = Aggregation.TOKEN_MEAN, Aggregation.SEQ_MEAN_TOKEN_MEAN


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def logs(*probabilities: float) -> torch.Tensor:
    return row(*probabilities).log()


def loss_of(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    rollout: torch.Tensor | None = None,
    **fields: Any,
) -> PolicyLossOutput:
    """All tokens count."""
    mask = torch.ones(logprobs.shape, dtype=torch.bool)
    config = PolicyLossConfig(**fields)
    return policy_loss(logprobs, old, advantages, mask, config=config, rollout_logprobs_BT=rollout)


def test_the_ppo_loss_clips_gains_and_not_losses() -> None:
    # ratios 1.5, 1.5, .5, .5 with A = 1, -1, 1, -1 and clip .2:
    # -min(1.5, 1.2) = -1.2; -min(-1.5, -1.2) = 1.5; -min(.5, .8) = -.5; -min(-.5, -.8) = .8; mean .6/4 = .15
    out = loss_of(logs(0.6, 0.6, 0.2, 0.2), logs(0.4, 0.4, 0.4, 0.4), row(1, -1, 1, -1))
    assert out.loss.item() == pytest.approx(0.15)
    # clipped is the smaller objective for the first and the last
    assert out.clip_fraction.item() == pytest.approx(0.5)
    # mean of old - new = -(2 log 1.5 + 2 log .5)/4 = -log(.75)/2
    assert out.approx_kl.item() == pytest.approx(-math.log(0.75) / 2)
    assert out.num_tokens.item() == 4
    assert out.mismatch_kl is None and out.filter_fraction is None


def test_clip_higher_lets_a_ratio_rise_further() -> None:
    # ratio 1.5, A = 1: -min(1.5, 1.28) = -1.28
    assert loss_of(logs(0.6), logs(0.4), row(1), clip_high=0.28).loss.item() == pytest.approx(-1.28)


def test_dual_clip_bounds_the_loss_of_a_negative_advantage_only() -> None:
    # ratio 8: A = -1: min(-8, -1.2) = -8, bounded to 3 * -1 -> loss 3; A = 1: clipped 1.2 -> loss -1.2; mean .9
    out = loss_of(logs(0.8, 0.8), logs(0.1, 0.1), row(-1, 1), dual_clip=3.0)
    assert out.loss.item() == pytest.approx(0.9)


def test_the_gspo_ratio_is_the_geometric_mean_over_the_sequence() -> None:
    # log ratios log 2 and log 1/2 cancel: rho = 1, loss -A per token; A = 1: -1
    out = loss_of(logs(0.4, 0.2), logs(0.2, 0.4), row(1, 1), kind="gspo")
    assert out.loss.item() == pytest.approx(-1.0)
    # rho = sqrt(4 * 1) = 2, clipped to 1.2
    assert loss_of(logs(0.4, 0.2), logs(0.1, 0.2), row(1, 1), kind="gspo").loss.item() == pytest.approx(-1.2)


CORRECTIONS = [
    # q/p per token = 2, 4, 1/4 with loss -1 each (old == new, A = 1); band [.5, 3]
    # token, mask: weights 2, 0, 0 -> -2/3; two of three are outside
    ({"level": "token", "threshold": (0.5, 3.0)}, -2 / 3, 2 / 3),
    # token, clip: weights 2, 3, .5 -> -5.5/3
    ({"level": "token", "mode": "clip", "threshold": (0.5, 3.0)}, -5.5 / 3, 2 / 3),
    # seq: geometric mean (2 * 4 / 4)^(1/3) = 2^(1/3) is inside: weights 2, 4, .25 -> -6.25/3
    ({"level": "seq", "threshold": (0.5, 3.0)}, -6.25 / 3, 0.0),
    # ... and outside of [1.5, 3]
    ({"level": "seq", "threshold": (1.5, 3.0)}, 0.0, 1.0),
    # |p - q| = .1, .3, .6: up to .3 passes: weights 2, 4, 0 -> -2
    ({"level": "token", "gating": "tv", "threshold": (0.0, 0.3001)}, -2.0, 1 / 3),
    # mean |p - q| = 1/3 is above .3
    ({"level": "seq", "gating": "tv", "threshold": (0.0, 0.3)}, 0.0, 1.0),
    # binary KL .1 log .5 + .9 log(.9/.8) = .0367; .1 log .25 + .9 log(.9/.6) = .226; .8 log 4 + .2 log .25 = .832
    ({"level": "token", "gating": "binary_kl", "threshold": (0.0, 0.23)}, -2.0, 1 / 3),
    ({"level": "token", "gating": "binary_kl", "threshold": (0.0, 0.22)}, -2 / 3, 2 / 3),
]


@pytest.mark.parametrize(("correction", "expected", "filtered"), CORRECTIONS)
def test_corrections_worked_by_hand(correction: dict[str, Any], expected: float, filtered: float) -> None:
    old, rollout = logs(0.2, 0.4, 0.2), logs(0.1, 0.1, 0.8)
    out = loss_of(old, old, row(1, 1, 1), rollout, correction=correction)
    assert out.loss.item() == pytest.approx(expected)
    assert out.filter_fraction is not None and out.mismatch_kl is not None
    assert out.filter_fraction.item() == pytest.approx(filtered)
    # mean of rollout - old = -(log 2 + log 4 - log 4)/3
    assert out.mismatch_kl.item() == pytest.approx(-math.log(2) / 3)


def test_aggregation_worked_by_hand() -> None:
    values = torch.tensor([[1.0, 2.0, 9.0], [6.0, 9.0, 9.0], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.bool)
    assert aggregate_loss(values, mask, TOKEN_MEAN).item() == 3.0  # (1 + 2 + 6) / 3
    assert aggregate_loss(values, mask, SEQ_MEAN).item() == 3.75  # (1.5 + 6) / 2: the empty row is no sequence
    assert aggregate_loss(values, mask, TOKEN_MEAN, denominator=18).item() == 0.5
    assert aggregate_loss(values, mask, SEQ_MEAN, denominator=5).item() == 1.5
    assert (loss_denominator(mask, TOKEN_MEAN), loss_denominator(mask, SEQ_MEAN)) == (3.0, 2.0)
    for aggregation in Aggregation:
        assert aggregate_loss(values, mask & False, aggregation, length=5).item() == 0.0


def test_the_value_loss_takes_the_worse_of_clipped_and_plain() -> None:
    # V 2, V_old 0, G 3, clip .5: (.5 - 3)^2 = 6.25 > (2 - 3)^2 = 1 -> 3.125; V 2, V_old 2, G 1: 1 -> .5; mean 1.8125
    arguments = row(2, 2), row(0, 2), row(3, 1), torch.ones(1, 2, dtype=torch.bool)
    assert value_loss(*arguments).item() == pytest.approx(1.8125)
    assert value_loss(*arguments, clip=None).item() == pytest.approx(0.5)


# Parity


def random_inputs(seed: int, scale: float = 0.7) -> tuple[torch.Tensor, ...]:
    """logprobs, old, rollout, advantages, mask; float64, every row has a token."""
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(6, 11, generator=generator, dtype=torch.float64) * 4 - 0.01
    noise, mismatch, advantages = (torch.randn(6, 11, generator=generator, dtype=torch.float64) for _ in range(3))
    mask = random_mask(6, 11, generator)
    return old + scale * noise, old, old + 0.5 * mismatch, advantages, mask


LOSSES = [
    dict(zip(("kind", "dual_clip", "aggregation"), values, strict=True))
    for values in itertools.product(("ppo",), (None, 3.0), (TOKEN_MEAN, SEQ_MEAN))
] + [{"kind": "gspo", "clip_low": 0.1, "clip_high": 0.3}, {"kind": "ppo", "clip_low": 0.05, "clip_high": 0.4}]
CORRECTION_VARIANTS: list[dict[str, Any]] = [
    {},
    {"level": "token"},
    {"level": "token", "threshold": (0.9, 1.5)},
    {"level": "token", "mode": "clip", "threshold": (0.9, 1.5)},
    {"level": "seq", "threshold": (0.8, 1.2)},
    {"level": "token", "gating": "binary_kl", "threshold": (0.0, 0.05)},
    {"level": "seq", "gating": "binary_kl", "threshold": (0.0, 0.05)},
    {"level": "token", "gating": "tv", "threshold": (0.0, 0.1)},
    {"level": "seq", "gating": "tv", "threshold": (0.0, 0.1)},
]


@pytest.mark.parametrize("correction", CORRECTION_VARIANTS)
@pytest.mark.parametrize("fields", LOSSES)
def test_the_policy_loss_its_gradient_and_metrics_are_openrlhfs(
    fields: dict[str, Any], correction: dict[str, Any]
) -> None:
    config = PolicyLossConfig(**fields, correction=correction)
    theirs = openrlhf().PolicyLoss(
        clip_eps_low=config.clip_low,
        clip_eps_high=config.clip_high,
        dual_clip=config.dual_clip,
        token_level_loss=config.aggregation is TOKEN_MEAN,
        policy_loss_type=str(config.kind),
        is_correction_level=str(config.correction.level),
        is_correction_mode=str(config.correction.mode),
        is_correction_gating=str(config.correction.gating),
        is_correction_threshold=list(config.correction.threshold),
    )
    for seed, scale in ((0, 0.7), (1, 0.2), (2, 15.0)):
        logprobs, old, rollout, advantages, mask = random_inputs(seed, scale)
        ours_in, theirs_in = (logprobs.clone().requires_grad_() for _ in range(2))
        ours = policy_loss(ours_in, old, advantages, mask, config=config, rollout_logprobs_BT=rollout)
        expected = theirs(theirs_in, old, advantages, action_mask=mask.long(), rollout_log_probs=rollout)
        ours.loss.backward()
        expected[0].backward()
        close(ours_in.grad, theirs_in.grad)
        assert ours.masked_fraction is None
        metrics = (ours.loss, ours.clip_fraction, ours.approx_kl, ours.mismatch_kl, ours.filter_fraction)
        for actual, reference in zip(metrics, expected, strict=True):
            if reference is not None:
                close(actual, reference.to(torch.float64))


def close(actual: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    assert actual is not None and expected is not None
    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("aggregation", [TOKEN_MEAN, SEQ_MEAN])
@pytest.mark.parametrize("denominator", [None, 20.0])
def test_aggregation_is_openrlhfs(aggregation: Aggregation, denominator: float | None) -> None:
    values, *_, mask = random_inputs(5)
    mask[2] = False
    expected = openrlhf().aggregate_loss(
        values, mask.long(), aggregation is TOKEN_MEAN, batch_num_tokens=denominator, global_batch_size=denominator
    )
    close(aggregate_loss(values, mask, aggregation, denominator), expected)


@pytest.mark.parametrize("clip", [None, 0.5, 0.1])
def test_the_value_loss_is_openrlhfs(clip: float | None) -> None:
    values, old, returns, _, mask = random_inputs(7)
    ours_in, theirs_in = (values.clone().requires_grad_() for _ in range(2))
    value_loss(ours_in, old, returns, mask, clip=clip).backward()
    openrlhf().ValueLoss(clip)(theirs_in, old, returns, mask.long()).backward()
    close(ours_in.grad, theirs_in.grad)
    close(value_loss(values, old, returns, mask, clip=clip), openrlhf().ValueLoss(clip)(values, old, returns, mask))


# Properties

OURS: list[dict[str, Any]] = [
    {"kind": "cispo"},
    {"kind": "sapo", "correction": {"level": "seq_product", "mode": "clip"}},
    {"kind": "gpg", "aggregation": "constant_length", "length": 7},
    {"off_policy_mask": 0.1, "probability_mask": 0.2},
    {"correction": {"level": "seq_product"}},
]
"""What OpenRLHF does not have."""
CONFIGS = st.sampled_from(
    [PolicyLossConfig(**fields, correction=correction) for fields in LOSSES for correction in CORRECTION_VARIANTS]
    + [PolicyLossConfig(**fields) for fields in OURS]
)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 9), config=CONFIGS, data=st.data())
def test_losses_and_gradients_of_micro_batches_add_up_to_the_whole(
    seed: int, rows: int, config: PolicyLossConfig, data: st.DataObject
) -> None:
    generator = torch.Generator().manual_seed(seed)
    old, noise, rollout, advantages = (
        torch.randn(rows, 8, generator=generator, dtype=torch.float64) - 2 for _ in range(4)
    )
    mask = random_mask(rows, 8, generator) & (torch.rand(rows, 1, generator=generator) < 0.8)
    order = torch.tensor(data.draw(st.permutations(range(rows))))
    cuts = data.draw(st.sets(st.integers(1, rows), max_size=rows))
    parts = torch.tensor_split(order, sorted(cuts))

    def loss(index: torch.Tensor, weights: torch.Tensor, denominator: float | None) -> torch.Tensor:
        return policy_loss(
            (old + 0.3 * weights)[index],
            old[index],
            advantages[index],
            mask[index],
            config=config,
            rollout_logprobs_BT=rollout[index],
            denominator=denominator,
        ).loss

    whole_in, split_in = (noise.clone().requires_grad_() for _ in range(2))
    whole = loss(torch.arange(rows), whole_in, None)
    whole.backward()
    denominator = loss_denominator(mask, config.aggregation, config.length)
    total = 0.0
    for part in parts:
        if len(part):
            micro = loss(part, split_in, denominator)
            micro.backward()
            total += micro.item()
    assert total == pytest.approx(whole.item(), rel=1e-9, abs=1e-12)
    torch.testing.assert_close(split_in.grad, whole_in.grad, rtol=1e-9, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), config=CONFIGS, junk=st.sampled_from([float("nan"), float("inf"), -1e30, 3.0]))
def test_what_stands_outside_the_mask_reaches_no_number_and_no_gradient(
    seed: int, config: PolicyLossConfig, junk: float
) -> None:
    *tensors, mask = random_inputs(seed)
    mask[0] = False
    logprobs, old, rollout, advantages = (tensor.masked_fill(~mask, junk) for tensor in tensors)
    logprobs.requires_grad_()
    out = policy_loss(logprobs, old, advantages, mask, config=config, rollout_logprobs_BT=rollout)
    out.loss.backward()
    clean = [tensor.masked_fill(~mask, 0.0) for tensor in tensors]
    expected = policy_loss(clean[0], clean[1], clean[3], mask, config=config, rollout_logprobs_BT=clean[2])
    for actual, reference in zip(out, expected, strict=True):
        assert (actual is None) == (reference is None)
        assert actual is None or actual.item() == reference.item()
    assert logprobs.grad is not None
    assert logprobs.grad[~mask].count_nonzero() == 0
    assert bool(logprobs.grad.isfinite().all())


@pytest.mark.parametrize("kind", PolicyLossKind)
def test_a_batch_without_a_single_token_has_loss_zero_and_no_nan(kind: str) -> None:
    logprobs, old, rollout, advantages, mask = random_inputs(0)
    logprobs.requires_grad_()
    correction = {"level": "seq"}
    config = PolicyLossConfig(kind=kind, correction=correction)
    out = policy_loss(logprobs, old, advantages, mask & False, config=config, rollout_logprobs_BT=rollout)
    out.loss.backward()
    assert all(value is None or value.item() == 0 for value in out)
    assert logprobs.grad is not None and logprobs.grad.count_nonzero() == 0


def test_the_value_loss_of_micro_batches_adds_up_and_ignores_holes() -> None:
    values, old, returns, _, mask = random_inputs(3)
    values = values.masked_fill(~mask, float("nan")).requires_grad_()
    denominator = loss_denominator(mask, TOKEN_MEAN)
    parts = [
        value_loss(values[i], old[i], returns[i], mask[i], denominator=denominator) for i in ([0, 1, 2, 3], [4, 5])
    ]
    whole = value_loss(values, old, returns, mask)
    assert sum(part.item() for part in parts) == pytest.approx(whole.item())
    whole.backward()
    assert values.grad is not None and values.grad[~mask].count_nonzero() == 0


def test_a_sequence_without_a_token_is_neither_kept_nor_filtered() -> None:
    # one sequence outside the thresholds, one empty: 1 of 1 is filtered
    old, rollout = logs(0.8).repeat(2, 1), logs(0.1).repeat(2, 1)
    config = PolicyLossConfig(correction={"level": "seq", "threshold": (0.5, 2.0)})
    mask = torch.tensor([[True], [False]])
    out = policy_loss(old, old, old, mask, config=config, rollout_logprobs_BT=rollout)
    assert out.filter_fraction is not None and out.filter_fraction.item() == 1.0


@pytest.mark.parametrize("fields", [*LOSSES, *OURS])
def test_only_the_current_logprobs_get_a_gradient(fields: dict[str, Any]) -> None:
    *tensors, mask = random_inputs(4)
    logprobs, old, rollout, advantages = (tensor.requires_grad_() for tensor in tensors)
    config = PolicyLossConfig(**{"correction": {"level": "token"}, **fields})
    out = policy_loss(logprobs, old, advantages, mask, config=config, rollout_logprobs_BT=rollout)
    out.loss.backward()
    assert logprobs.grad is not None
    assert old.grad is None and rollout.grad is None and advantages.grad is None
    assert not any(value.requires_grad for value in out[1:] if value is not None)


# Settings


def test_gspo_aggregates_per_sequence_and_refuses_another_way() -> None:
    assert PolicyLossConfig(kind="gspo").aggregation is SEQ_MEAN
    assert PolicyLossConfig().aggregation is TOKEN_MEAN
    with pytest.raises(ValidationError, match="gspo averages per sequence"):
        PolicyLossConfig(kind="gspo", aggregation="token_mean")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"level": "token", "mode": "clip", "gating": "tv", "threshold": (0, 1)}, "mode clip reads the ratio"),
        ({"level": "seq_product", "gating": "tv", "threshold": (0, 1)}, "level seq_product reads the ratio"),
        ({"level": "token", "gating": "binary_kl"}, r"write threshold \[0, 5.0\]"),
        ({"level": "token", "threshold": (2, 1)}, r"write \[low, high\]"),
    ],
)
def test_corrections_that_do_not_exist_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        OffPolicyCorrection(**fields)


def test_dual_clip_must_exceed_one() -> None:
    with pytest.raises(ValidationError, match="greater than 1"):
        PolicyLossConfig(dual_clip=1.0)


@pytest.mark.parametrize("kind", PolicyLossKind)
def test_a_correction_without_the_samplers_logprobs_is_refused(kind: str) -> None:
    with pytest.raises(AssertionError, match="rollout_logprobs_BT"):
        loss_of(logs(0.5), logs(0.5), row(1), kind=kind, correction={"level": "token"})
