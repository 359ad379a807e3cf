"""`python -m benchmarks.embedded.prober.build [folder [seed]]` makes the shipped checkpoint from nothing, in minutes.

First the skill, to probe at random where the number may be, then the habits of the shipped policy. Nothing bisects.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Mapping
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.bisect.demonstrations import Habit, demonstrate, drill
from benchmarks.embedded.games.evaluate import play_game
from benchmarks.embedded.games.tokenizer import build_tokenizer
from benchmarks.embedded.recipe import Recipe
from benchmarks.embedded.tiny.demonstrations import Demonstration
from benchmarks.embedded.tiny.model import Shape, round_weights, run_build, save_checkpoint
from benchmarks.embedded.tiny.pretrain import HabitsPlan, SkillsPlan, Stage, train_habits, train_skills
from rlf.builtin.encyclopedia.names import NameSplit, split_names

_NUM_DRILLS, _NUM_WHOLE = 16, 16
_SHAPE = Shape(kv_heads=4, intermediate=128, max_positions=512)
_HABIT_STEPS, _HABIT_SCALE = 60, 0.1
POLICY = {Habit.INSIDE: 0.32, Habit.GIVE_UP: 0.68}
"""How often the shipped policy follows each habit, drawn again for each probe."""


def recipe(seed: int = 0) -> Recipe:
    """What is trained, on what."""
    tokenizer = build_tokenizer()
    plan = SkillsPlan(constant_steps=220, decay_steps=180)
    habits = HabitsPlan(plan.muon_rate, plan.adamw_rate, _HABIT_STEPS)

    def skills_batch(step: int) -> list[Demonstration]:
        return _rows(tokenizer, f"skill:{seed}:{step}", {Habit.INSIDE: 1.0})

    def habits_batch(step: int) -> list[Demonstration]:
        return _rows(tokenizer, f"habits:{seed}:{step}", POLICY)

    return Recipe(
        tokenizer,
        seed,
        Stage(plan, skills_batch, context_weight=0.0),
        Stage(habits, habits_batch, scale=_HABIT_SCALE, context_weight=0.0),
        _SHAPE,
    )


def build(folder: Path, seed: int = 0) -> None:
    """Trains both stages and writes a checkpoint that transformers loads, with its card, into `folder`."""
    made = recipe(seed)
    tokenizer, model = made.tokenizer, made.create_model()
    started = time.process_time()
    train_skills(model, tokenizer, made.skills)
    skill = play_game(model, tokenizer, "bisect/heldout", num_samples=1, sample_seed=0)
    train_habits(model, tokenizer, made.habits)
    round_weights(model)
    base = play_game(model, tokenizer, "bisect/heldout", num_samples=2, sample_seed=0)
    card = {
        "parameters": model.num_parameters(),
        "seed": seed,
        "skills": dataclasses.asdict(made.skills.plan),
        "habits": {
            "steps": _HABIT_STEPS,
            "scale": _HABIT_SCALE,
            "shares": {str(habit): share for habit, share in POLICY.items()},
        },
        "cpu_s": round(time.process_time() - started),
        "after_skills": {"sampled": round(skill.success, 4), "calls": round(skill.calls, 2)},
        "base": {"sampled": round(base.success, 4), "calls": round(base.calls, 2)},
    }
    save_checkpoint(model.bfloat16(), tokenizer, folder, card, made.digest())


def _rows(tokenizer: PreTrainedTokenizerFast, seed: str, habits: Mapping[Habit, float]) -> list[Demonstration]:
    rng, names = random.Random(f"prober:{seed}"), split_names(NameSplit.TRAIN)

    def draw_habit() -> Habit:
        return rng.choices(list(habits), list(habits.values()))[0]

    drills = [drill(tokenizer, rng, rng.choice(names), draw_habit) for _ in range(_NUM_DRILLS)]
    whole = [demonstrate(tokenizer, rng, rng.choice(names), draw_habit, has_notes=True) for _ in range(_NUM_WHOLE)]
    return drills + whole


if __name__ == "__main__":
    run_build(build, "prober")
