"""Log-probabilities, entropies, and the one-token shift."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.algo import logprobs as module
from rlf.algo.logprobs import shift, token_logprobs

from .openrlhf_reference import openrlhf


def random_logits(
    seed: int, rows: int = 7, vocabulary: int = 13, scale: float = 3.0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64)
    return logits, torch.randint(vocabulary, (rows,), generator=generator)


def test_logprob_and_entropy_worked_by_hand() -> None:
    # softmax(log [1, 3]) = [1/4, 3/4]; H = log 4 / 4 + 3/4 log(4/3)
    logits = torch.tensor([[1.0, 3.0]], dtype=torch.float64).log()
    out = token_logprobs(logits, torch.tensor([1]), with_entropy=True)
    assert out.logprobs_N.item() == pytest.approx(math.log(0.75))
    assert out.entropy_N is not None
    assert out.entropy_N.item() == pytest.approx(math.log(4) / 4 + 0.75 * math.log(4 / 3))


def test_temperature_divides_the_logits() -> None:
    # temperature .5 squares the odds: softmax = [1/10, 9/10]
    logits = torch.tensor([[1.0, 3.0]], dtype=torch.float64).log()
    assert token_logprobs(logits, torch.tensor([0]), 0.5).logprobs_N.item() == pytest.approx(math.log(0.1))
    with pytest.raises(AssertionError, match="greedy"):
        token_logprobs(logits, torch.tensor([0]), 0.0)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.0])
def test_values_are_openrlhfs_and_torchs(temperature: float) -> None:
    logits, targets = random_logits(0)
    out = token_logprobs(logits, targets, temperature, with_entropy=True)
    theirs = openrlhf().log_probs_from_logits(logits.clone(), targets, temperature)
    torch.testing.assert_close(out.logprobs_N, theirs)
    plain_entropy = openrlhf().compute_entropy._torchdynamo_orig_callable
    torch.testing.assert_close(out.entropy_N, plain_entropy(logits / temperature))
    distribution = torch.distributions.Categorical(logits=logits / temperature)
    torch.testing.assert_close(out.entropy_N, distribution.entropy())


@pytest.mark.parametrize("chunk_numel", [1, 30, 1 << 24])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_gradients_are_exact_whatever_the_chunks(chunk_numel: int, temperature: float) -> None:
    logits, targets = random_logits(1, rows=5, vocabulary=6)
    logits.requires_grad_()
    with mock.patch.object(module, "_CHUNK_NUMEL", chunk_numel):
        both = lambda x: tuple(token_logprobs(x, targets, temperature, with_entropy=True))  # noqa: E731
        only = lambda x: token_logprobs(x, targets, temperature).logprobs_N  # noqa: E731
        assert torch.autograd.gradcheck(both, (logits,))
        assert torch.autograd.gradcheck(only, (logits,))


def test_half_precision_logits_are_computed_in_float32_and_get_their_own_gradient() -> None:
    logits, targets = random_logits(2)
    low = logits.bfloat16().requires_grad_()
    high = low.detach().double().requires_grad_()
    out = token_logprobs(low, targets, with_entropy=True)
    assert out.logprobs_N.dtype == torch.float32
    expected = token_logprobs(high, targets, with_entropy=True)
    torch.testing.assert_close(out.logprobs_N.double(), expected.logprobs_N, rtol=1e-5, atol=1e-5)
    assert out.entropy_N is not None and expected.entropy_N is not None
    (out.logprobs_N.sum() + out.entropy_N.sum()).backward()
    (expected.logprobs_N.sum() + expected.entropy_N.sum()).backward()
    assert low.grad is not None and high.grad is not None and low.grad.dtype == torch.bfloat16
    torch.testing.assert_close(low.grad.double(), high.grad, rtol=1e-2, atol=1e-2)


def test_huge_and_forbidden_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, -1e4, -torch.inf], [0.0, 0.0, -torch.inf]], requires_grad=True)
    out = token_logprobs(logits, torch.tensor([0, 1]), with_entropy=True)
    assert out.logprobs_N.tolist() == pytest.approx([0.0, -math.log(2)])
    assert out.entropy_N is not None and out.entropy_N.tolist() == pytest.approx([0.0, math.log(2)])
    (out.logprobs_N.sum() + out.entropy_N.sum()).backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())


def test_no_rows_are_no_trouble() -> None:
    out = token_logprobs(torch.zeros(0, 4, requires_grad=True), torch.zeros(0, dtype=torch.int64), with_entropy=True)
    assert out.logprobs_N.shape == (0,)
    out.logprobs_N.sum().backward()


def test_the_backward_pass_keeps_the_logits_and_no_second_matrix() -> None:
    logits, targets = random_logits(3, rows=64, vocabulary=50)
    logits = logits.float().requires_grad_()
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        token_logprobs(logits, targets, with_entropy=True)
    matrices = [tensor for tensor in saved if tensor.numel() >= logits.numel()]
    assert [tensor.data_ptr() for tensor in matrices] == [logits.data_ptr()]


def test_the_shift_worked_by_hand() -> None:
    # tokens [5 6 7 8] with 6 and 8 sampled: positions 0 and 2 predict them; second row at offset 4: 9 at slot 7
    tokens = torch.tensor([[5, 6, 7, 8], [1, 2, 3, 9]])
    mask = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 1]], dtype=torch.bool)
    shifted = shift(tokens, mask)
    assert shifted.source_N.tolist() == [0, 2, 6]
    assert shifted.slot_N.tolist() == [1, 3, 7]
    assert shifted.targets_N.tolist() == [6, 8, 9]
    values_BT = shifted.to_tokens(torch.tensor([0.1, 0.2, 0.3]))
    torch.testing.assert_close(values_BT, torch.tensor([[0, 0.1, 0, 0.2], [0, 0, 0, 0.3]]))


def test_a_sampled_token_that_nothing_predicts_is_refused() -> None:
    with pytest.raises(AssertionError, match="token 0"):
        shift(torch.tensor([[5, 6]]), torch.tensor([[True, False]]))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 4), length=st.integers(2, 8))
def test_shifted_logprobs_are_those_of_the_next_token(seed: int, rows: int, length: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, (rows, length), generator=generator)
    mask = torch.rand(rows, length, generator=generator) < 0.5
    mask[:, 0] = False
    logits = torch.randn(rows, length, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    shifted = shift(tokens, mask)
    out = token_logprobs(logits.flatten(0, 1)[shifted.source_N], shifted.targets_N)
    actual = shifted.to_tokens(out.logprobs_N)
    # the textbook slice: logits[:, :-1] against tokens[:, 1:]
    textbook = logits[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    torch.testing.assert_close(actual[:, 1:][mask[:, 1:]], textbook[mask[:, 1:]])
    assert actual[~mask].count_nonzero() == 0
    actual.sum().backward()
    assert logits.grad is not None
    predicts = torch.zeros_like(mask)
    predicts[:, :-1] = mask[:, 1:]
    assert logits.grad[~predicts].count_nonzero() == 0
