"""Every estimator and loss computed again, in plain Python from its formula, on odd batches.

    python benchmarks/batches.py [--batches 1100]

Odd: groups of one to six rollouts in any order, equal rewards, rewards of a thousandth and of thousands, masks with
holes, trajectories without a sampled token, no bounds on rewards, a KL penalty, and what is no number wherever it must
not be read. Means are of fractions, without rounding. Prints the largest difference of each, relative where values are
above 1, and ends with exit code 1 where one is above 1e-6.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from rlf.algo.advantages.dr_grpo import DrGrpo
from rlf.algo.advantages.gae import Gae
from rlf.algo.advantages.grpo import Grpo
from rlf.algo.advantages.reinforce import Reinforce
from rlf.algo.advantages.reinforce_baseline import ReinforceBaseline
from rlf.algo.advantages.rloo import Rloo
from rlf.algo.advantages.supervised import Supervised
from rlf.algo.estimator import AdvantageInput, TermRewards, TurnRewards
from rlf.algo.loss_config import Aggregation, PolicyLossConfig
from rlf.algo.losses import policy_loss
from rlf.apps.estimators.flash_reinforce import FlashReinforce
from rlf.apps.estimators.gdpo import Gdpo
from rlf.apps.estimators.gpg import Gpg
from rlf.apps.estimators.grpo_passk import GrpoPassk
from rlf.apps.estimators.maxrl import Maxrl
from rlf.apps.estimators.mt_grpo import MtGrpo
from rlf.apps.estimators.opo import Opo
from rlf.apps.estimators.pass_at_k import PassAtK
from rlf.apps.estimators.remax import Remax

ALLOWED = 1e-6
NAN = math.nan
Rows = list[list[float]]


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as lists."""

    rewards: list[float]
    groups: list[int]
    mask: list[list[bool]]
    values: Rows
    kl: Rows
    kl_coef: float
    clip: tuple[float, float] | None
    greedy: list[float]
    terms: Rows
    """By trajectory and term; NaN: the term has no value."""
    weights: list[float]
    turns: list[list[int]]
    """The turn of each token."""
    num_turns: list[int]
    outcome: list[float]
    by_turn: Rows
    old: Rows
    new: Rows
    advantages: Rows

    def of_group(self, group: int) -> list[int]:
        return [row for row, other in enumerate(self.groups) if other == group]


def draw(seed: int) -> Batch:
    """A batch; `seed` decides what is odd about it."""
    rng = random.Random(seed)
    groups = [number for number in range(rng.randint(1, 5)) for _ in range(rng.randint(1, 6))]
    groups = [11 * number - 7 for number in groups]
    rng.shuffle(groups)
    rows, tokens, scale = len(groups), rng.randint(1, 12), 10.0 ** rng.randint(-3, 3)

    def reward() -> float:
        return float(rng.random() < 0.4) if seed % 3 else scale * rng.gauss(0, 1)

    rewards = [reward() for _ in range(rows)]
    if seed % 5 == 0:
        rewards = [rewards[groups.index(group)] for group in groups]  # equal within each
    mask = [[rng.random() < 0.5 for _ in range(tokens)] for _ in range(rows)]
    if seed % 4:
        for row in mask:
            row[rng.randrange(tokens)] = True  # else some row may have none

    def numbers(scale: float = 1.0) -> Rows:
        return [[scale * rng.gauss(0, 1) if there else NAN for there in row] for row in mask]

    num_terms, num_turns = rng.randint(1, 3), [rng.randint(1, 4) for _ in range(rows)]
    return Batch(
        rewards=rewards,
        groups=groups,
        mask=mask,
        values=numbers(),
        kl=numbers(0.1),
        kl_coef=rng.choice((0.0, 0.1)),
        clip=rng.choice((None, (-10.0, 10.0), (-0.5, 0.5))),
        greedy=[reward() for _ in range(rows)],
        terms=[[NAN if rng.random() < 0.1 else reward() for _ in range(num_terms)] for _ in range(rows)],
        weights=[rng.choice((-1.0, 0.5, 2.0)) for _ in range(num_terms)],
        turns=[sorted(rng.randrange(num) for _ in range(tokens)) for num in num_turns],
        num_turns=num_turns,
        outcome=[reward() for _ in range(rows)],
        by_turn=[[reward() if turn < num else NAN for turn in range(4)] for num in num_turns],
        old=[[-abs(value) for value in row] for row in numbers()],
        new=[[-abs(value) for value in row] for row in numbers()],
        advantages=numbers(2.0),
    )


# The formulas, of lists.


def mean(values: Sequence[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction(0)) / max(1, len(values))


def deviations(values: Sequence[float]) -> list[float]:
    return [float(Fraction(value) - mean(values)) for value in values]


def std(values: Sequence[float]) -> float:
    return math.sqrt(math.fsum(each**2 for each in deviations(values)) / max(1, len(values) - 1))


def by_group(batch: Batch, formula: Callable[[list[float], list[int]], list[float]]) -> list[float]:
    """A formula of the rewards of one group and their rows, for every group."""
    found = [0.0] * len(batch.groups)
    for group in set(batch.groups):
        rows = batch.of_group(group)
        for row, value in zip(rows, formula([batch.rewards[row] for row in rows], rows), strict=True):
            found[row] = value
    return found


def normal(values: Sequence[float]) -> list[float]:
    return [each / (std(values) + 1e-9) for each in deviations(values)]


def to_tokens(batch: Batch, shaped: Sequence[float], gamma: float = 1.0) -> Rows:
    """The discounted return at each sampled token of a reward at the last of them, less the KL penalty at each."""
    found = []
    for row, value in enumerate(shaped):
        at = [t for t, there in enumerate(batch.mask[row]) if there]
        low, high = batch.clip or (-math.inf, math.inf)
        earned = [0.0] * len(batch.mask[row])
        for t in at:
            earned[t] = (min(max(value, low), high) if t == at[-1] else 0.0) - (
                batch.kl_coef * batch.kl[row][t] if batch.kl_coef else 0.0
            )
        found.append(
            [
                math.fsum(gamma ** (k - t) * earned[k] for k in at if k >= t) if t in at else 0.0
                for t in range(len(earned))
            ]
        )
    return found


def whiten(batch: Batch, values: Rows) -> Rows:
    flat = [
        v for row, there in zip(values, batch.mask, strict=True) for v, is_one in zip(row, there, strict=True) if is_one
    ]
    centre = float(mean(flat))
    variance = math.fsum((value - centre) ** 2 for value in flat) / max(1, len(flat))
    return [
        [(v - centre) / math.sqrt(max(variance, 1e-8)) if is_one else 0.0 for v, is_one in zip(row, there, strict=True)]
        for row, there in zip(values, batch.mask, strict=True)
    ]


def gpg(batch: Batch) -> list[float]:
    teaching = sum(len({batch.rewards[row] for row in batch.of_group(group)}) > 1 for group in batch.groups)
    return [len(batch.groups) / max(1, teaching) * each for each in by_group(batch, lambda r, _: deviations(r))]


def lead(rewards: list[float], _: list[int]) -> list[float]:
    ranked = sorted(rewards, reverse=True)
    first = rewards.index(ranked[0])
    gap = ranked[0] - ranked[1] if len(ranked) > 1 else 0.0
    return [gap / (std(rewards) + 1e-6) if place == first else 0.0 for place in range(len(rewards))]


def best_of(k: int) -> Callable[[list[float], list[int]], list[float]]:
    def formula(rewards: list[float], _: list[int]) -> list[float]:
        if len(rewards) <= k:
            return [0.0] * len(rewards)
        chosen = list(itertools.combinations(range(len(rewards)), k))
        best = [max(rewards[i] for i in subset) for subset in chosen]
        centre = mean(best)
        scale = math.sqrt(math.fsum(float(Fraction(each) - centre) ** 2 for each in best) / len(best)) + 1e-9
        with_it = [[b for b, subset in zip(best, chosen, strict=True) if i in subset] for i in range(len(rewards))]
        return [float(mean(each) - centre) / scale for each in with_it]

    return formula


def opo(batch: Batch) -> list[float]:
    def formula(rewards: list[float], rows: list[int]) -> list[float]:
        lengths = [sum(batch.mask[row]) for row in rows]
        if not sum(lengths):
            return [float(Fraction(r) - Fraction(min(rewards))) for r in rewards]  # no token reads it
        baseline = sum((n * Fraction(r) for n, r in zip(lengths, rewards, strict=True)), Fraction(0)) / sum(lengths)
        return [float(Fraction(r) - baseline) for r in rewards]

    return by_group(batch, formula)


def gdpo(batch: Batch) -> list[float]:
    sums = [0.0] * len(batch.groups)
    for term, weight in enumerate(batch.weights):
        for group in set(batch.groups):
            rows = [row for row in batch.of_group(group) if not math.isnan(batch.terms[row][term])]
            for row, value in zip(rows, normal([weight * batch.terms[row][term] for row in rows]), strict=True):
                sums[row] += abs(weight) * value
    scale = math.sqrt(math.fsum(each**2 for each in sums) / max(1, len(sums) - 1)) + 1e-4
    return [each / scale for each in sums]


def mt_grpo(batch: Batch, gamma: float, coef: float) -> Rows:
    outcome = [0.0] * len(batch.groups)
    low, high = batch.clip or (-math.inf, math.inf)
    by_turn: dict[tuple[int, int], float] = {}
    for group in set(batch.groups):
        rows = batch.of_group(group)
        for row, value in zip(rows, normal([batch.outcome[row] for row in rows]), strict=True):
            outcome[row] = value
        for turn in range(4):
            there = [row for row in rows if turn < batch.num_turns[row]]
            to_go = [
                math.fsum(gamma ** (k - turn) * batch.by_turn[row][k] for k in range(turn, batch.num_turns[row]))
                for row in there
            ]
            for row, value in zip(there, normal(to_go), strict=True):
                by_turn[row, turn] = min(max(coef * value, low), high)
    found = to_tokens(batch, outcome)
    for row, tokens in enumerate(batch.mask):
        for t, there in enumerate(tokens):
            found[row][t] += by_turn[row, batch.turns[row][t]] if there else 0.0
    return found


def gae(batch: Batch, gamma: float, lam: float, skips: bool) -> Rows:
    """The sum over k of (gamma lam)^k delta, written as a sum and not as a recursion."""
    found = []
    for row, tokens in enumerate(batch.mask):
        at = [t for t, there in enumerate(tokens) if there]
        order = at if skips else list(range(len(tokens)))
        value = [batch.values[row][t] if tokens[t] else 0.0 for t in order]
        low, high = batch.clip or (-math.inf, math.inf)
        earned = [
            (min(max(batch.rewards[row], low), high) if t == at[-1] else 0.0)
            - (batch.kl_coef * batch.kl[row][t] if batch.kl_coef else 0.0)
            if tokens[t]
            else 0.0
            for t in order
        ]
        delta = [r + gamma * nxt - v for r, nxt, v in zip(earned, [*value, 0.0][1:], value, strict=True)]
        sums = {
            t: math.fsum((gamma * lam) ** k * each for k, each in enumerate(delta[i:])) for i, t in enumerate(order)
        }
        found.append([sums[t] if there else 0.0 for t, there in enumerate(tokens)])
    return whiten(batch, found)


def supervised(batch: Batch) -> Rows:
    kept = sum(sum(tokens) for tokens, r in zip(batch.mask, batch.rewards, strict=True) if r >= 1.0)
    weight = sum(map(sum, batch.mask)) / max(1, kept)
    return [
        [weight if there and r >= 1.0 else 0.0 for there in tokens]
        for tokens, r in zip(batch.mask, batch.rewards, strict=True)
    ]


def maxrl(rewards: list[float], _: list[int]) -> list[float]:
    centre = mean(rewards)
    return [float((Fraction(r) - centre) / centre) if centre > 0 else 0.0 for r in rewards]


LOSSES = {kind: PolicyLossConfig.model_validate({"kind": kind}) for kind in ("ppo", "gspo", "cispo", "sapo", "gpg")}


def loss_of(batch: Batch, kind: str) -> float:
    config, by_row = LOSSES[kind], []
    for row, tokens in enumerate(batch.mask):
        at = [t for t, there in enumerate(tokens) if there]
        moved, losses = [batch.new[row][t] - batch.old[row][t] for t in at], []
        for t, log_ratio in zip(at, moved, strict=True):
            rho = math.exp(math.fsum(moved) / len(at) if kind == "gspo" else log_ratio)
            gain, new = batch.advantages[row][t], batch.new[row][t]
            cut = min(max(rho, 1 - config.clip_low), 1 + config.clip_high)
            tau = config.tau_pos if gain > 0 else config.tau_neg
            losses.append(
                {
                    "ppo": -min(rho * gain, cut * gain),
                    "gspo": -min(rho * gain, cut * gain),
                    "cispo": -cut * gain * new,
                    "sapo": -4 / tau / (1 + math.exp(-tau * (rho - 1))) * gain,
                    "gpg": -gain * new,
                }[kind]
            )
        by_row.append(losses)
    if config.aggregation is Aggregation.TOKEN_MEAN:
        return math.fsum(each for row in by_row for each in row) / max(1, sum(map(len, by_row)))
    means = [math.fsum(row) / len(row) for row in by_row if row]
    return math.fsum(means) / max(1, len(means))


ESTIMATORS: dict[str, tuple[Any, Callable[[Batch], Rows]]] = {
    "dr_grpo": (DrGrpo(), lambda b: to_tokens(b, by_group(b, lambda r, _: deviations(r)))),
    "flash_reinforce": (FlashReinforce(), lambda b: to_tokens(b, deviations(b.rewards))),
    "gae": (Gae(gamma=0.9, lam=0.8), lambda b: gae(b, 0.9, 0.8, skips=False)),
    "gae, skip": (Gae(gamma=0.9, lam=0.8, observations="skip"), lambda b: gae(b, 0.9, 0.8, skips=True)),
    "gdpo": (Gdpo(), lambda b: to_tokens(b, gdpo(b))),
    "gpg": (Gpg(), lambda b: to_tokens(b, gpg(b))),
    "grpo": (Grpo(), lambda b: to_tokens(b, by_group(b, lambda r, _: normal(r)))),
    "grpo_passk": (GrpoPassk(), lambda b: to_tokens(b, by_group(b, lead))),
    "maxrl": (Maxrl(), lambda b: to_tokens(b, by_group(b, maxrl))),
    "mt_grpo": (MtGrpo(gamma=0.7, turn_coef=0.5), lambda b: mt_grpo(b, 0.7, 0.5)),
    "opo": (Opo(), lambda b: to_tokens(b, opo(b))),
    "pass_at_k": (PassAtK(k=2), lambda b: to_tokens(b, by_group(b, best_of(2)))),
    "reinforce": (Reinforce(gamma=0.9), lambda b: whiten(b, to_tokens(b, b.rewards, 0.9))),
    "reinforce_baseline": (
        ReinforceBaseline(),
        lambda b: whiten(b, to_tokens(b, by_group(b, lambda r, _: deviations(r)))),
    ),
    "remax": (
        Remax(),
        lambda b: to_tokens(b, [float(Fraction(r) - Fraction(g)) for r, g in zip(b.rewards, b.greedy, strict=True)]),
    ),
    "rloo": (
        Rloo(),
        lambda b: to_tokens(
            b, by_group(b, lambda r, _: [len(r) / max(1, len(r) - 1) * each for each in deviations(r)])
        ),
    ),
    "supervised": (Supervised(), supervised),
}


def as_input(batch: Batch, kind: str) -> AdvantageInput:
    """The batch as tensors; terms and turns for those that read them alone."""

    def floats(values: Any) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    terms = turns = None
    if kind == "gdpo":
        values_BK = floats(batch.terms)
        weighted_BK = (values_BK * floats(batch.weights)).nan_to_num(0.0)
        terms = TermRewards(weighted_BK, ~values_BK.isnan(), floats(batch.weights))
    if kind == "mt_grpo":
        by_turn_BK, num_turns_B = floats(batch.by_turn), torch.tensor(batch.num_turns)
        states_BK = torch.zeros(by_turn_BK.shape, dtype=torch.int64)  # not read by it
        turns = TurnRewards(floats(batch.outcome), by_turn_BK, num_turns_B, torch.tensor(batch.turns), states_BK)
    return AdvantageInput(
        rewards_B=floats(batch.rewards),
        group_B=torch.tensor(batch.groups),
        action_mask_BT=torch.tensor(batch.mask),
        kl_BT=floats(batch.kl),
        kl_coef=batch.kl_coef,
        values_BT=floats(batch.values),
        reward_clip=batch.clip,
        turns=turns,
        terms=terms,
        greedy_B=floats(batch.greedy),
    )


def differ(got: Sequence[Sequence[float]], expected: Rows) -> float:
    """The largest difference, relative above 1; infinite where one is no number."""
    pairs = [pair for rows in zip(got, expected, strict=True) for pair in zip(*rows, strict=True)]
    return max((abs(g - e) / max(1.0, abs(e)) if math.isfinite(g) else math.inf for g, e in pairs), default=0.0)


def main() -> int:
    """Prints the table. Exit code 1 where a difference is too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1100)
    largest: dict[str, float] = {}
    for seed in range(parser.parse_args().batches):
        batch = draw(seed)
        found = {
            name: differ(estimator.advantages(as_input(batch, name)).advantages_BT.tolist(), formula(batch))
            for name, (estimator, formula) in ESTIMATORS.items()
        }
        new, old, gains = (torch.tensor(rows, dtype=torch.float64) for rows in (batch.new, batch.old, batch.advantages))
        for kind, config in LOSSES.items():
            loss = policy_loss(new, old, gains, torch.tensor(batch.mask), config=config).loss
            found[f"loss {kind}"] = differ([[float(loss)]], [[loss_of(batch, kind)]])
        for name, difference in found.items():
            largest[name] = max(largest.get(name, 0.0), difference)
    for name, difference in largest.items():
        print(f"{name:20} {difference:.1e}")
    return int(max(largest.values()) > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
