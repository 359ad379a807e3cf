"""Dynamic filtering: which groups stay, as OpenRLHF decides it."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.algo.filtering import keep_groups

from .openrlhf_reference import reference_filter


def test_groups_that_all_or_none_solved_are_dropped() -> None:
    # means 1, 0, 1/2 against (0, 1), both ends excluded
    scores = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    groups = torch.tensor([4, 9, 4, 2, 9, 2])
    assert keep_groups(scores, groups, 0.0, 1.0).tolist() == [False, False, False, True, False, True]


def test_the_mean_decides_and_not_the_spread() -> None:
    assert keep_groups(torch.tensor([0.5, 0.5]), torch.tensor([0, 0]), 0.0, 1.0).tolist() == [True, True]


def test_a_group_with_a_score_that_is_no_number_is_dropped() -> None:
    assert keep_groups(torch.tensor([0.5, torch.nan]), torch.tensor([0, 0]), 0.0, 1.0).tolist() == [False, False]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.integers(1, 5))
def test_the_kept_groups_are_openrlhfs(data: st.DataObject, size: int) -> None:
    score = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0, -1.0]) | st.floats(-2, 2)
    scores = data.draw(st.lists(st.lists(score, min_size=size, max_size=size), min_size=1, max_size=4))
    low, high = sorted(data.draw(st.tuples(score, score)))
    flat = torch.tensor(scores, dtype=torch.float64).flatten()
    groups = torch.arange(len(scores)).repeat_interleave(size)
    kept = keep_groups(flat, groups, low, high).view(len(scores), size)
    assert kept.any(dim=1).tolist() == kept.all(dim=1).tolist() == reference_filter(scores, low, high)
