import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlf.training.draw import draw_tokens, keep_likely, likeliest, uniforms
from rlf.types import Sampling

LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
PROBS = LOGITS.softmax(-1)[0].tolist()


def frequencies(sampling, count=4000):
    noise = torch.from_numpy(uniforms(5, count))
    tokens, _ = draw_tokens(LOGITS.expand(count, 4), noise, sampling)
    return (torch.bincount(tokens, minlength=4) / count).tolist()


def test_drawn_tokens_follow_the_softmax():
    assert frequencies(Sampling()) == pytest.approx(PROBS, abs=0.03)


def test_temperature_divides_the_logits():
    assert frequencies(Sampling(2.0)) == pytest.approx((LOGITS / 2).softmax(-1)[0].tolist(), abs=0.03)


def test_top_k_keeps_the_k_likeliest():
    kept = frequencies(Sampling(top_k=2))
    assert kept[:2] == [0.0, 0.0] and kept[3] == pytest.approx(PROBS[3] / (PROBS[2] + PROBS[3]), abs=0.03)


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    # sorted probabilities .644 .237 .087 .032: .644 < .7 <= .881, so two tokens stay
    assert [f > 0 for f in frequencies(Sampling(top_p=0.7))] == [False, False, True, True]


def test_min_p_drops_what_is_unlikely_beside_the_likeliest():
    # ratios to the likeliest: e^-3 .05, e^-2 .135, e^-1 .37, 1
    assert [f > 0 for f in frequencies(Sampling(min_p=0.1))] == [False, True, True, True]


def test_greedy_takes_the_likeliest_and_reports_its_logprob_at_temperature_one():
    tokens, logprobs = draw_tokens(LOGITS, torch.tensor([0.0], dtype=torch.float64), Sampling(0.0))
    assert tokens.tolist() == [3] and logprobs[0] == pytest.approx(math.log(PROBS[3]))


def test_logprobs_are_at_the_temperature_and_before_truncation():
    tokens, logprobs = draw_tokens(LOGITS, torch.tensor([0.5], dtype=torch.float64), Sampling(0.5, top_k=1))
    assert tokens.tolist() == [3] and logprobs[0] == pytest.approx((LOGITS / 0.5).log_softmax(-1)[0, 3].item())


@given(st.floats(0, 1, exclude_max=True), st.lists(st.floats(-30, 30), min_size=2, max_size=50))
def test_any_uniform_number_gives_a_token_of_positive_probability(number, logits):
    logits_BV = torch.tensor([logits], dtype=torch.float32)
    tokens, logprobs = draw_tokens(logits_BV, torch.tensor([number], dtype=torch.float64), Sampling(top_p=0.9))
    assert 0 <= tokens[0] < len(logits) and logprobs[0] > -math.inf


def test_a_longer_stream_of_noise_starts_with_the_shorter_one():
    assert uniforms(7, 50)[:20].tolist() == uniforms(7, 20).tolist()


def test_each_draw_inverts_the_cumulative_distribution():
    # cumulative .25 .5 .75 1: a number at a step is the next token's
    numbers = torch.tensor([0.0, 0.2499, 0.25, 0.5, 0.7501, 1.0], dtype=torch.float64)
    tokens, _ = draw_tokens(torch.zeros(6, 4), numbers, Sampling())
    assert tokens.tolist() == [0, 0, 1, 2, 3, 3]


def test_what_is_excluded_is_judged_by_the_full_distribution():
    probs = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    kept = [
        keep_likely(probs, top_p=1, top_k=9, min_p=0),
        keep_likely(probs, top_p=1, top_k=1, min_p=0),
        keep_likely(probs, top_p=0.4, top_k=0, min_p=0),
        keep_likely(probs, top_p=0.8, top_k=3, min_p=0.6),
        keep_likely(probs, top_p=1, top_k=0, min_p=0.5),
    ]
    assert [[p > 0 for p in row[0].tolist()].count(True) for row in kept] == [4, 1, 1, 2, 3]
    assert kept[1][0].tolist() == pytest.approx([0.4, 0, 0, 0]), "in its place, as it was"


def test_of_tokens_as_likely_as_the_last_that_top_k_keeps_all_stay():
    assert keep_likely(torch.tensor([[0.4, 0.3, 0.3]]), top_p=1, top_k=2, min_p=0).count_nonzero() == 3


def test_the_likeliest_tokens_come_first_and_the_drawn_one_last():
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    logprobs = logits.log_softmax(-1).tolist()
    first, second = likeliest(logits, torch.tensor([0, 0]), 2)
    assert list(first) == [1, 2, 0] and first == pytest.approx(dict(enumerate(logprobs[0])))
    assert next(iter(second)) == 0 and second[0] == pytest.approx(logprobs[1][0]) and len(second) == 2
    assert list(likeliest(logits, torch.tensor([0, 0]), 9)[0]) == [1, 2, 0]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, top_p=0.9, top_k=3), Sampling(0.0)])
def test_rows_that_share_logits_draw_what_each_draws_from_its_own(sampling):
    shared_DV = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    source_B = torch.tensor([2, 0, 0, 1, 2, 2])
    noise = torch.from_numpy(uniforms(5, len(source_B)))
    found = draw_tokens(shared_DV, noise, sampling, source_B)
    torch.testing.assert_close(found, draw_tokens(shared_DV[source_B], noise, sampling), rtol=0, atol=0)
