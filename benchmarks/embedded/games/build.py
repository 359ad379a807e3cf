"""`python -m benchmarks.embedded.games.build [folder [seed]]` makes the model of the games from nothing.

Steps are counted and seeded, so a machine's speed changes nothing. The card has the figures of the base, and of the
same model after more training on the mixture: the control that supervision alone does not compose.
"""

from __future__ import annotations

import dataclasses
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.games.evaluate import play_game
from benchmarks.embedded.games.pretrain import Plan, habits_stage, skills_stage
from benchmarks.embedded.games.tokenizer import build_tokenizer
from benchmarks.embedded.recipe import Recipe
from benchmarks.embedded.tiny.model import Shape, run_build, save_checkpoint
from benchmarks.embedded.tiny.pretrain import train_habits, train_skills

_SHAPE = Shape(kv_heads=4, max_positions=512)
_FILES = ("rooms/heldout", "bisect/heldout", "compose/heldout", "compose/heldout_composition")
_CONTROL_FILES = ("compose/heldout",)
_CONTROL_STEPS = 40
_NUM_SAMPLES = 1


def recipe(seed: int = 0) -> Recipe:
    """What is trained, on what."""
    tokenizer, plan = build_tokenizer(), Plan()
    habits = habits_stage(tokenizer, plan, f"habits:{seed}", plan.habit_steps)
    return Recipe(tokenizer, seed, skills_stage(tokenizer, plan, seed), habits, _SHAPE)


def build(folder: Path, seed: int = 0) -> None:
    """Trains the model and writes a checkpoint that transformers loads, with its card, into `folder`."""
    made, plan = recipe(seed), Plan()
    tokenizer, model = made.tokenizer, made.create_model()
    started = time.process_time()
    train_skills(model, tokenizer, made.skills)
    train_habits(model, tokenizer, made.habits)
    cpu_s = round(time.process_time() - started)
    control = deepcopy(model)
    train_habits(control, tokenizer, habits_stage(tokenizer, plan, f"more:{seed}", _CONTROL_STEPS))
    card = {
        "parameters": model.num_parameters(),
        "seed": seed,
        "plan": dataclasses.asdict(plan),
        "cpu_s": cpu_s,
        "base": {name: _measure_figures(model, tokenizer, name) for name in _FILES},
        "control": {
            "more_steps": _CONTROL_STEPS,
            **{name: _measure_figures(control, tokenizer, name) for name in _CONTROL_FILES},
        },
    }
    save_checkpoint(model, tokenizer, folder, card, made.digest())


def _measure_figures(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, name: str) -> dict[str, Any]:
    greedy = play_game(model, tokenizer, name, num_samples=1, sample_seed=None)
    sampled = play_game(model, tokenizer, name, num_samples=_NUM_SAMPLES, sample_seed=0)
    return {
        "samples_per_question": _NUM_SAMPLES,
        "greedy": round(greedy.success, 4),
        "sampled": round(sampled.success, 4),
        "episode_tokens": round(sampled.episode_tokens, 1),
        "calls": round(sampled.calls, 2),
    }


if __name__ == "__main__":
    run_build(build, "games")
