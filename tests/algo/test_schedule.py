"""The learning-rate factor: worked numbers and transformers' own schedules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlf.algo.loss_config import LrSchedule, lr_factor


def test_linear_worked_by_hand() -> None:
    # warm-up 1/2, 2/2; then 1 - p with p = 0, 1/4, 2/4, 3/4
    factors = [lr_factor(step, 6, 2, LrSchedule.LINEAR) for step in range(1, 7)]
    assert factors == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]


def test_the_cosine_is_half_way_to_its_floor_in_the_middle() -> None:
    # total 4, p = 2/4: .1 + .9 * (1 + cos(pi/2)) / 2 = .55
    assert lr_factor(3, 4, 0, LrSchedule.COSINE_WITH_MIN_LR, min_ratio=0.1) == pytest.approx(0.55)


def test_the_constant_stays_at_the_peak() -> None:
    assert [lr_factor(step, 3, 1, LrSchedule.CONSTANT) for step in (1, 2, 3, 4)] == [1.0] * 4


@pytest.mark.parametrize("kind", LrSchedule)
@pytest.mark.parametrize(("total", "warmup"), [(20, 0), (20, 5), (7, 7), (1, 0), (3, 1)])
def test_every_factor_after_warm_up_is_transformers(kind: LrSchedule, total: int, warmup: int) -> None:
    optimization = pytest.importorskip("transformers.optimization")
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    cosine = kind is LrSchedule.COSINE_WITH_MIN_LR
    scheduler = optimization.get_scheduler(
        "constant_with_warmup" if kind is LrSchedule.CONSTANT else str(kind),
        optimizer,
        num_warmup_steps=warmup,
        num_training_steps=total,
        scheduler_specific_kwargs={"min_lr_rate": 0.1} if cosine else {},
    )
    for step in range(1, total + 1):
        theirs = scheduler.get_last_lr()[0]
        expected = theirs if step > warmup else theirs + 1 / warmup
        assert lr_factor(step, total, warmup, kind, 0.1) == pytest.approx(expected)
        optimizer.step()
        scheduler.step()


@given(
    total=st.integers(1, 50),
    warmup=st.integers(0, 60),
    step=st.integers(1, 200),
    kind=st.sampled_from(LrSchedule),
    floor=st.floats(0, 1),
)
def test_no_step_has_a_rate_of_zero_or_above_the_peak(
    total: int, warmup: int, step: int, kind: LrSchedule, floor: float
) -> None:
    assert 0.0 < lr_factor(step, total, warmup, kind, floor) <= 1.0 + 1e-12


def test_steps_count_from_one() -> None:
    with pytest.raises(AssertionError, match="from 1"):
        lr_factor(0, 10, 0, LrSchedule.CONSTANT)
