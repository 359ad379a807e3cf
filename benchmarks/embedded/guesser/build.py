"""`python -m benchmarks.embedded.guesser.build [folder [seed]]` makes the shipped checkpoint from nothing.

It needs TextArena. First the skill, to guess what the hints allow, then the habits of the shipped policy. The game's
words are TextArena's own.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Mapping
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.guesser.demonstrations import (
    POLICY,
    Habit,
    Wording,
    build_tokenizer,
    demonstrate,
    read_wording,
)
from benchmarks.embedded.recipe import Recipe
from benchmarks.embedded.tiny.demonstrations import Demonstration
from benchmarks.embedded.tiny.model import Shape, run_build, save_checkpoint
from benchmarks.embedded.tiny.pretrain import HabitsPlan, SkillsPlan, Stage, train_habits, train_skills

_BATCH_SIZE = 32
_SHAPE = Shape(hidden=64, intermediate=128, heads=2, kv_heads=2, max_positions=512)


def recipe(seed: int = 0, wording: Wording | None = None) -> Recipe:
    """What is trained, on what; the wording is TextArena's own, or as a card has it."""
    wording = wording or read_wording()
    tokenizer = build_tokenizer(wording)

    def skills_batch(step: int) -> list[Demonstration]:
        return _rows(tokenizer, wording, f"skill:{seed}:{step}", {Habit.INSIDE: 1.0})

    def habits_batch(step: int) -> list[Demonstration]:
        return _rows(tokenizer, wording, f"policy:{seed}:{step}", POLICY)

    skills = Stage(SkillsPlan(constant_steps=250, decay_steps=250), skills_batch, context_weight=0.0)
    habits = Stage(HabitsPlan(steps=60), habits_batch, context_weight=0.0)
    return Recipe(tokenizer, seed, skills, habits, _SHAPE, copies=False)


def build(folder: Path, seed: int = 0) -> None:
    """Trains both stages and writes a checkpoint that transformers loads, with its card, into `folder`."""
    wording = read_wording()
    made = recipe(seed, wording)
    tokenizer, model = made.tokenizer, made.create_model()
    started = time.process_time()
    train_skills(model, tokenizer, made.skills)
    train_habits(model, tokenizer, made.habits)
    cpu_s = round(time.process_time() - started)
    card = {
        "parameters": model.num_parameters(),
        "seed": seed,
        "wording": wording._asdict(),
        "skills": dataclasses.asdict(made.skills.plan),
        "policy": {"steps": made.habits.num_steps, "habits": {str(habit): share for habit, share in POLICY.items()}},
        "cpu_s": cpu_s,
    }
    save_checkpoint(model.bfloat16(), tokenizer, folder, card, made.digest())


def _rows(
    tokenizer: PreTrainedTokenizerFast, wording: Wording, seed: str, habits: Mapping[Habit, float]
) -> list[Demonstration]:
    rng = random.Random(f"guesser:{seed}")
    return [demonstrate(tokenizer, wording, rng, habits) for _ in range(_BATCH_SIZE)]


if __name__ == "__main__":
    run_build(build, "guesser")
