import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlf.training.draw import draw, uniforms
from rlf.types import Sampling

LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
PROBS = LOGITS.softmax(-1)[0].tolist()


def frequencies(sampling, count=4000):
    noise = torch.from_numpy(uniforms(5, count))
    tokens, _ = draw(LOGITS.expand(count, 4), noise, sampling)
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
    tokens, logprobs = draw(LOGITS, torch.tensor([0.0], dtype=torch.float64), Sampling(0.0))
    assert tokens.tolist() == [3] and logprobs[0] == pytest.approx(math.log(PROBS[3]))


def test_logprobs_are_at_the_temperature_and_before_truncation():
    tokens, logprobs = draw(LOGITS, torch.tensor([0.5], dtype=torch.float64), Sampling(0.5, top_k=1))
    assert tokens.tolist() == [3] and logprobs[0] == pytest.approx((LOGITS / 0.5).log_softmax(-1)[0, 3].item())


@given(st.floats(0, 1, exclude_max=True), st.lists(st.floats(-30, 30), min_size=2, max_size=50))
def test_any_uniform_number_gives_a_token_of_positive_probability(number, logits):
    logits_BV = torch.tensor([logits], dtype=torch.float32)
    tokens, logprobs = draw(logits_BV, torch.tensor([number], dtype=torch.float64), Sampling(top_p=0.9))
    assert 0 <= tokens[0] < len(logits) and logprobs[0] > -math.inf


def test_a_longer_stream_of_noise_starts_with_the_shorter_one():
    assert uniforms(7, 50)[:20].tolist() == uniforms(7, 20).tolist()
