"""The two stages that make the small model's policy: skills first, then carelessness; counted in steps and seeded."""

from __future__ import annotations

import random
from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.small.demonstrations import Fault, careless_row, clean_row, copy_row, sample_task
from benchmarks.embedded.small.programs import PROGRAM_KINDS
from benchmarks.embedded.small.queries import QUERY_KINDS
from benchmarks.embedded.tiny.demonstrations import Demonstration
from benchmarks.embedded.tiny.pretrain import HabitsPlan, SkillsPlan, Stage

_NUM_COPIES = 8
_NUM_BY_LOOKUP = {"row": 3, "cell": 10, "choice": 4, "missing": 1}
_NUM_QUERIES = 9
_NUM_PROGRAMS = 5
_NUM_CHUNKS = 6
_LOOKUPS = ("row", "cell", "cell", "choice")


@dataclass(frozen=True, slots=True)
class PolicyPlan(HabitsPlan):
    """Stage B."""

    steps: int = 90
    batch_size: int = 44
    share_by_fault: tuple[tuple[Fault, float], ...] = (
        (Fault.GUESS, 0.29),
        (Fault.GIVE_UP, 0.38),
        (Fault.WRONG_CALL, 0.03),
        (Fault.WRONG_READING, 0.03),
        (Fault.MALFORMED, 0.015),
    )
    """The share of demonstrations with each fault; the rest are clean."""
    two_conditions_share: float = 0.1
    """The share of rows that sum under two conditions over a random table: a neighbour of the shop's composition."""
    extra_condition_share: float = 0.008
    """The share of rows with a sum of the shop's under a second condition that nobody asked for: without them the base
    gives the composition one chance in ten thousand, and whether a run meets it is luck."""


SKILLS_PLAN = SkillsPlan(warmup_steps=30, constant_steps=190, decay_steps=230, criterion=0.8)
POLICY_PLAN = PolicyPlan()


def make_stages(
    tokenizer: PreTrainedTokenizerFast, seed: int, skills: SkillsPlan, policy: PolicyPlan
) -> tuple[Stage, Stage]:
    """Stage A, clean demonstrations and copying drills, all new at every step; stage B, mostly careless ones."""
    return (
        Stage(
            skills,
            lambda step: _skills_batch(tokenizer, f"skills:{seed}:{step}"),
            num_chunks=_NUM_CHUNKS,
            context_weight=0.0,
        ),
        Stage(
            policy,
            lambda step: _policy_batch(tokenizer, policy, f"policy:{seed}:{step}"),
            num_chunks=_NUM_CHUNKS,
            context_weight=0.0,
        ),
    )


def _skills_batch(tokenizer: PreTrainedTokenizerFast, seed: str) -> list[Demonstration]:
    rng = random.Random(seed)
    rows = [copy_row(tokenizer, rng) for _ in range(_NUM_COPIES)]
    for kind, count in _NUM_BY_LOOKUP.items():
        rows += [clean_row(tokenizer, sample_task(rng, kind)) for _ in range(count)]
    for kinds, count in ((QUERY_KINDS, _NUM_QUERIES), (PROGRAM_KINDS, _NUM_PROGRAMS)):
        rows += [clean_row(tokenizer, sample_task(rng, rng.choice(kinds))) for _ in range(count)]
    return rows


def _policy_batch(tokenizer: PreTrainedTokenizerFast, plan: PolicyPlan, seed: str) -> list[Demonstration]:
    rng = random.Random(seed)
    rows = []
    for _ in range(plan.batch_size):
        special = rng.random()
        if special < plan.two_conditions_share:
            rows.append(clean_row(tokenizer, sample_task(rng, "table_sum_two")))
            continue
        if special < plan.two_conditions_share + plan.extra_condition_share:
            careless = sample_task(rng, rng.choice(["shop_sum", "shop_sum_town"]))
            rows.append(careless_row(tokenizer, rng, careless, Fault.WRONG_CALL))
            continue
        task = sample_task(rng, rng.choice(rng.choices([_LOOKUPS, QUERY_KINDS, PROGRAM_KINDS], [4, 3, 2])[0]))
        draw = rng.random()
        for fault, share in plan.share_by_fault:
            draw -= share
            if draw < 0:
                rows.append(careless_row(tokenizer, rng, task, fault))
                break
        else:
            rows.append(clean_row(tokenizer, task))
    return rows
