"""KL estimates: worked numbers, OpenRLHF's numbers and gradients, bounds."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlf.algo.loss_config import KlKind, approx_kl

from .openrlhf_reference import openrlhf


def kl_of(difference: float, kind: KlKind) -> float:
    return approx_kl(torch.tensor([difference], dtype=torch.float64), torch.zeros(1), kind).item()


def test_the_estimates_worked_by_hand() -> None:
    # d = log .5 - log .25 = log 2: k1 = log 2; k2 = (log 2)^2 / 2; k3 = 1/2 - 1 + log 2
    d = math.log(2)
    assert kl_of(d, KlKind.K1) == pytest.approx(d)
    assert kl_of(d, KlKind.K2) == pytest.approx(d * d / 2)
    assert kl_of(d, KlKind.K3) == pytest.approx(d - 0.5)


@pytest.mark.parametrize("kind", KlKind)
def test_values_are_bounded_by_ten(kind: KlKind) -> None:
    assert kl_of(1000.0, kind) == 10.0
    assert kl_of(-1000.0, kind) == (-10.0 if kind is KlKind.K1 else 10.0)


@pytest.mark.parametrize("kind", KlKind)
@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0])
def test_values_and_gradients_are_openrlhfs(kind: KlKind, scale: float) -> None:
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        reference = torch.randn(4, 9, generator=generator)
        logprobs = reference + scale * torch.randn(4, 9, generator=generator)
        ours_in, theirs_in = (logprobs.clone().requires_grad_() for _ in range(2))
        ours = approx_kl(ours_in, reference, kind)
        theirs = openrlhf().compute_approx_kl(theirs_in, reference, kl_estimator=str(kind))
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
        ours.sum().backward()
        theirs.sum().backward()
        torch.testing.assert_close(ours_in.grad, theirs_in.grad, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [KlKind.K2, KlKind.K3])
@given(difference=st.floats(-200, 200))
def test_k2_and_k3_are_never_negative_and_have_a_finite_gradient(kind: KlKind, difference: float) -> None:
    logprobs = torch.tensor([difference], dtype=torch.float64, requires_grad=True)
    value = approx_kl(logprobs, torch.zeros(1, dtype=torch.float64), kind)
    value.sum().backward()
    assert value.item() >= 0.0
    assert logprobs.grad is not None and math.isfinite(logprobs.grad.item())


def test_half_precision_is_raised_to_float32() -> None:
    low = torch.tensor([-1.0], dtype=torch.bfloat16)
    assert approx_kl(low, low, KlKind.K3).dtype == torch.float32


def test_k3_of_a_small_difference_is_not_lost_in_rounding() -> None:
    # d^2 / 2 - d^3 / 6 + ... at d = 1e-4: 5e-9; exp(-d) - 1 + d in float32 is off by up to 6e-8
    value = approx_kl(torch.tensor([1e-4]), torch.zeros(1), KlKind.K3)
    assert value.item() == pytest.approx(5e-9, rel=1e-2)
