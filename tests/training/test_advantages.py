"""The advantages that are recorded of a trajectory, and which of them rewards alone give."""

from __future__ import annotations

import pytest
import torch

from rlf.algo import ESTIMATORS
from rlf.algo.estimator import AdvantageInput
from rlf.training.evaluation import find_missing, mean_advantages, recompute_advantages


def test_a_rows_mean_is_over_its_tokens_in_the_loss() -> None:
    # (3 + 0 + 0) / 1 and (1 + 2 + 0) / 2; what the mask leaves out is 0
    means = mean_advantages(torch.tensor([[3.0, 0, 0], [1, 2, 0]]), torch.tensor([[1, 0, 0], [1, 1, 0]]))
    assert means == [3.0, 1.5]


def test_rewards_alone_give_the_advantages_of_rloo() -> None:
    # leave-one-out baselines (0 + 2) / 2, (1 + 2) / 2, (1 + 0) / 2; every sampled token has its row's
    mask = torch.tensor([[False, True, True], [True, True, True], [False, False, True]])
    asked = AdvantageInput(torch.tensor([1.0, 0, 2]), torch.zeros(3, dtype=torch.long), mask)
    assert recompute_advantages(ESTIMATORS.get("rloo")(), asked) == pytest.approx([0.0, -1.5, 1.5])


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("grpo", None),
        ("gae", "gae needs a critic's values of each token, which are not stored"),
        ("remax", "remax takes the rewards of greedy rollouts, which are not scored again"),
    ],
)
def test_what_an_estimator_reads_beside_rewards_is_named(kind: str, missing: str | None) -> None:
    assert find_missing(ESTIMATORS.get(kind)()) == missing
