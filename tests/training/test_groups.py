"""Dynamic filtering: which groups stay, as OpenRLHF decides it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.spec.models import FilterSpec
from rlf.training.counting import is_kept, keep_groups

from ..algo.openrlhf_reference import reference_filter
from .trajectories import scored

HALF_OPEN = FilterSpec(low=0.0, high=1.0)


def test_groups_that_all_or_none_solved_are_dropped() -> None:
    # means 1, 0, 1/2 against (0, 1), both ends excluded
    collected = [scored("a", 1.0), scored("b", 0.0), scored("a", 1.0), scored("c", 1.0), scored("b", 0.0)]
    collected += [scored("c", 0.0), scored("c", None)]
    assert [item.trajectory.task.id for item in keep_groups(collected, HALF_OPEN)] == ["c", "c", "c"]
    assert keep_groups(collected, None) == collected


def test_a_group_whose_trajectories_do_not_count_is_dropped() -> None:
    assert keep_groups([scored("a", None), scored("b", 0.5, sampled=0)], HALF_OPEN) == []


@pytest.mark.parametrize(
    ("right", "wrong"), [(1.0, 0.0), (1.0, -1.0), (0.0, -1.0), (64.0, 0.0), (-3.0, -5.0), (0.7, 0.7000001)]
)
def test_without_bounds_exactly_the_groups_whose_rewards_differ_are_kept(right: float, wrong: float) -> None:
    for num_right in range(5):
        rewards = [right] * num_right + [wrong] * (4 - num_right)
        assert is_kept(rewards, FilterSpec()) is (0 < num_right < 4), rewards


def test_equal_sums_that_rounding_sets_apart_do_not_differ() -> None:
    assert not is_kept([0.1 + 0.2, 0.3], FilterSpec())
    assert not is_kept([0.5], FilterSpec()) and not is_kept([], FilterSpec())
    assert not is_kept([0.5, math.nan], FilterSpec())


def test_a_bound_without_the_other_is_open_on_its_side() -> None:
    assert is_kept([5.0, 5.0], FilterSpec(low=0.1)) and not is_kept([0.0], FilterSpec(low=0.1))
    assert is_kept([-5.0], FilterSpec(high=0.9)) and not is_kept([1.0], FilterSpec(high=0.9))


def test_the_mean_decides_and_not_the_spread() -> None:
    assert is_kept([0.5, 0.5], HALF_OPEN)


def test_a_group_with_a_score_that_is_no_number_is_dropped() -> None:
    assert not is_kept([0.5, math.nan], HALF_OPEN)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.integers(1, 5))
def test_the_kept_groups_are_openrlhfs(data: st.DataObject, size: int) -> None:
    score = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0, -1.0]) | st.floats(-2, 2)
    groups = data.draw(st.lists(st.lists(score, min_size=size, max_size=size), min_size=1, max_size=4))
    low, high = sorted(data.draw(st.tuples(score, score)))
    kept = [is_kept(rewards, FilterSpec(low=low, high=high)) for rewards in groups]
    assert kept == reference_filter(groups, low, high)
