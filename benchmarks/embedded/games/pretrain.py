"""The two stages that make the games' model: the skills by themselves, then mostly bad habits."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.bisect import demonstrations as bisect
from benchmarks.embedded.compose import demonstrations as compose
from benchmarks.embedded.rooms import demonstrations as rooms
from benchmarks.embedded.tiny.demonstrations import Demonstration, copy_drill
from benchmarks.embedded.tiny.pretrain import HabitsPlan, Schedule, Stage
from rlf.builtin.encyclopedia.names import NameSplit, split_names
from rlf.builtin.rooms.vault import plan_vault

_NUM_COPY_DRILLS, _NUM_ROOM_DRILLS, _NUM_SINGLES, _NUM_VAULTS, _NUM_BOXES = 6, 12, 30, 16, 28
_MAX_ROOMS = 5

_Habit = TypeVar("_Habit", bound=Enum)


@dataclass(frozen=True, slots=True)
class Plan(Schedule):
    """Steps and rates; short and long rows take turns, so that little is padding."""

    constant_steps: int = 220
    decay_steps: int = 130
    habit_steps: int = 60
    """Steps of the second stage, in which habits are drawn as the shipped policy draws them, again in each turn."""
    habit_scale: float = 0.1
    """Rates of the second stage, as a share of the first's: habits change, and skills stay."""


def skills_stage(tokenizer: PreTrainedTokenizerFast, plan: Plan, seed: int) -> Stage:
    """The first stage."""
    return Stage(plan, lambda step: _rows(tokenizer, f"games:{seed}", step, is_mixed=False))


def habits_stage(tokenizer: PreTrainedTokenizerFast, plan: Plan, seed: str, num_steps: int) -> Stage:
    """The second stage; and, with more steps, the control that demonstrations alone lead no further."""
    habits = HabitsPlan(plan.muon_rate, plan.adamw_rate, num_steps)
    return Stage(habits, lambda step: _rows(tokenizer, seed, step, is_mixed=True), scale=plan.habit_scale)


def _rows(tokenizer: PreTrainedTokenizerFast, seed: str, step: int, *, is_mixed: bool) -> list[Demonstration]:
    make_rows = _long_rows if step % 2 else _short_rows
    return make_rows(tokenizer, random.Random(f"{seed}:{step}"), is_mixed=is_mixed)


def _short_rows(tokenizer: PreTrainedTokenizerFast, rng: random.Random, *, is_mixed: bool) -> list[Demonstration]:
    names = split_names(NameSplit.TRAIN)
    rows = [copy_drill(tokenizer, rng) for _ in range(_NUM_COPY_DRILLS)]
    rows += [rooms.drill(tokenizer, rng, rng.choice(names)) for _ in range(0 if is_mixed else _NUM_ROOM_DRILLS)]
    policy = compose.POLICY if is_mixed else compose.SKILLS
    skills = rng.choices(list(policy), list(policy.values()), k=_NUM_SINGLES)
    return rows + [compose.demonstrate(tokenizer, rng, lambda: rng.choice(names), skill) for skill in skills]


def _long_rows(tokenizer: PreTrainedTokenizerFast, rng: random.Random, *, is_mixed: bool) -> list[Demonstration]:
    names = split_names(NameSplit.TRAIN)
    rows: list[Demonstration] = []
    while len(rows) < _NUM_VAULTS:
        name = rng.choice(names)
        if len(plan_vault(name).order) <= _MAX_ROOMS:
            rows.append(rooms.demonstrate(tokenizer, rng, name, _drawer(rng, rooms.POLICY, is_mixed)))
    return rows + [
        bisect.demonstrate(tokenizer, rng, rng.choice(names), _drawer(rng, bisect.POLICY, is_mixed))
        for _ in range(_NUM_BOXES)
    ]


def _drawer(rng: random.Random, policy: Mapping[_Habit, float], is_mixed: bool) -> Callable[[], _Habit]:
    """Draws the habits of one demonstration: always the policy's first, the skill itself, or as the policy has it."""
    habits, shares = list(policy), list(policy.values())
    return lambda: rng.choices(habits, shares)[0] if is_mixed else habits[0]
