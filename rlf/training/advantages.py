"""The advantages that a run reports for its trajectories: the mean over each one's tokens in the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlf.algo.estimator import AdvantageInput, Estimator

if TYPE_CHECKING:
    from torch import Tensor


def mean_advantages(advantages_BT: Tensor, mask_BT: Tensor) -> list[float]:
    """Mean advantage of each row over the tokens of its mask, of which it has at least one."""
    means: list[float] = (advantages_BT.sum(1) / mask_BT.sum(1)).tolist()
    return means


def recompute_advantages(estimator: Estimator, asked: AdvantageInput) -> list[float]:
    """Mean advantages from rewards alone; for estimators of which `find_missing` names nothing."""
    assert find_missing(estimator) is None, find_missing(estimator)
    return mean_advantages(estimator.advantages(asked).advantages_BT, asked.action_mask_BT)


def find_missing(estimator: Estimator) -> str | None:
    """The inputs of an estimator that only its engine has, in words; None where it reads rewards alone."""
    kind = type(estimator).__module__.rpartition(".")[2]
    if estimator.needs_critic:
        return f"{kind} needs a critic's values of each token, which are not stored"
    if estimator.needs_greedy:
        return f"{kind} takes the rewards of greedy rollouts, which are not scored again"
    return None
