"""Batches of several worlds, whose rewards have scales of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlf.algo.estimator import OF_TOKENS, AdvantageInput, AdvantageOutput, Estimator, TermRewards, TurnRewards

if TYPE_CHECKING:
    from torch import Tensor


def advantages_by_world(estimator: Estimator, batch: AdvantageInput) -> AdvantageOutput:
    """The advantages of a batch, each world's rows by themselves: their rewards have scales of their own."""
    worlds = [] if batch.world_B is None else sorted({*batch.world_B.tolist()})
    if len(worlds) < 2 or batch.world_B is None:
        return estimator.advantages(batch)
    rows = [(batch.world_B == world).nonzero().squeeze(1) for world in worlds]
    outputs = [estimator.advantages(take_rows(batch, rows_N)) for rows_N in rows]
    joined = {}
    for name in ("advantages_BT", "returns_BT", "rewards_B"):
        first = getattr(outputs[0], name)
        joined[name] = first.new_zeros((len(batch.rewards_B), *first.shape[1:]))
        for rows_N, output in zip(rows, outputs, strict=True):
            joined[name][rows_N] = getattr(output, name)
    return AdvantageOutput(**joined)


def take_rows(batch: AdvantageInput, rows_N: Tensor) -> AdvantageInput:
    """Some of the rows, in an order that is given, as a batch of one world."""
    names = ("rewards_B", "group_B", "action_mask_BT", "greedy_B", *OF_TOKENS)
    chosen: dict[str, Any] = {name: one[rows_N] for name in names if (one := getattr(batch, name)) is not None}
    if (terms := batch.terms) is not None:
        chosen["terms"] = TermRewards(terms.values_BK[rows_N], terms.is_scored_BK[rows_N], terms.weights_K)
    if (turns := batch.turns) is not None:
        all_B = (turns.outcome_B, turns.rewards_BK, turns.num_turns_B, turns.turn_BT, turns.state_BK)
        chosen["turns"] = TurnRewards(*(one[rows_N] for one in all_B))
    return replace(batch, **chosen, world_B=None)
