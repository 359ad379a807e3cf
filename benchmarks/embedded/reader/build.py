"""`python -m benchmarks.embedded.reader.build [folder [seed]]` makes the shipped checkpoint from nothing.

First the skill on shorter and longer questions, then the habits of the shipped policy. Steps are counted and seeded, so
that a machine's speed changes nothing. Weights are stored as bfloat16, rounded before the card measures them.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.reader.demonstrations import POLICY, SHAPES, Habit, Scene, copy_words, demonstrate, draw_scene
from benchmarks.embedded.reader.tokenizer import build_tokenizer
from benchmarks.embedded.recipe import Recipe
from benchmarks.embedded.tiny.demonstrations import Demonstration
from benchmarks.embedded.tiny.evaluate import Episode, EvaluationQuestion, play_episodes
from benchmarks.embedded.tiny.layout import ToolCallTextError, opening_ids
from benchmarks.embedded.tiny.model import Shape, round_weights, run_build, save_checkpoint
from benchmarks.embedded.tiny.pretrain import HabitsPlan, SkillsPlan, Stage, train_habits, train_skills

logger = logging.getLogger(__name__)

_SHAPE = Shape(hidden=128, intermediate=128, layers=4, kv_heads=4)
_NUM_COPIES = 6
_NUM_SHORT, _NUM_LONG = 40, 24
"""Rows of a batch: questions of one call, or of any shape."""
_SHORT_STEPS = 100
_NUM_CHUNKS = 3
_NUM_FIGURES, _MAX_TURN_TOKENS, _MAX_TURNS = 48, 200, 5


def recipe(seed: int = 0) -> Recipe:
    """What is trained, on what."""
    tokenizer = build_tokenizer()

    def skills_batch(step: int) -> list[Demonstration]:
        return _skills_batch(tokenizer, step, f"reader:{seed}:{step}")

    def habits_batch(step: int) -> list[Demonstration]:
        return _habits_batch(tokenizer, f"reader-policy:{seed}:{step}")

    skills = SkillsPlan(constant_steps=260, decay_steps=200)
    return Recipe(
        tokenizer,
        seed,
        Stage(skills, skills_batch, num_chunks=_NUM_CHUNKS, context_weight=0.0),
        Stage(HabitsPlan(steps=70), habits_batch, num_chunks=_NUM_CHUNKS, context_weight=0.0),
        _SHAPE,
    )


def build(folder: Path, seed: int = 0) -> None:
    """Trains both stages and writes a checkpoint that transformers loads, with its card, into `folder`."""
    made = recipe(seed)
    tokenizer, model = made.tokenizer, made.create_model()
    started = time.process_time()
    train_skills(model, tokenizer, made.skills)
    skilled = _measure_shapes(model, tokenizer)
    logger.info("skills done: %s", skilled)
    train_habits(model, tokenizer, made.habits)
    cpu_s = round(time.process_time() - started)
    round_weights(model)
    card = {
        "parameters": model.num_parameters(),
        "seed": seed,
        "skills": {"plan": dataclasses.asdict(made.skills.plan), "unseen_documents": skilled},
        "policy": {"steps": made.habits.num_steps, "habits": {str(habit): share for habit, share in POLICY.items()}},
        "cpu_s": cpu_s,
        "base": _measure_shapes(model, tokenizer),
    }
    save_checkpoint(model.bfloat16(), tokenizer, folder, card, made.digest())


def _skills_batch(tokenizer: PreTrainedTokenizerFast, step: int, seed: str) -> list[Demonstration]:
    rng = random.Random(seed)
    rows = [copy_words(tokenizer, rng) for _ in range(_NUM_COPIES)]
    if step < _SHORT_STEPS:
        return rows + [demonstrate(tokenizer, draw_scene(rng, "single", 6), Habit.RIGHT) for _ in range(_NUM_SHORT)]
    shapes = rng.choices(list(SHAPES), list(SHAPES.values()), k=_NUM_LONG)
    return rows + [demonstrate(tokenizer, draw_scene(rng, shape), Habit.RIGHT) for shape in shapes]


def _habits_batch(tokenizer: PreTrainedTokenizerFast, seed: str) -> list[Demonstration]:
    rng = random.Random(seed)
    habits = rng.choices(list(POLICY), list(POLICY.values()), k=_NUM_LONG)
    shapes = rng.choices(list(SHAPES), list(SHAPES.values()), k=_NUM_LONG)
    return [demonstrate(tokenizer, draw_scene(rng, shape), habit) for shape, habit in zip(shapes, habits, strict=True)]


def _measure_shapes(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> dict[str, dict[str, float]]:
    """Solve-F1 on unseen documents by shape, greedy and sampled at temperature 1."""
    rng = random.Random("reader:heldout")
    scenes = [draw_scene(rng, shape) for shape in SHAPES for _ in range(_NUM_FIGURES)]
    return {"greedy": _solve_f1(model, tokenizer, scenes, None), "sampled": _solve_f1(model, tokenizer, scenes, 0)}


def _solve_f1(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, scenes: Sequence[Scene], sample_seed: int | None
) -> dict[str, float]:
    made: list[list[tuple[str, str]]] = [[] for _ in scenes]
    episodes = [
        Episode(
            EvaluationQuestion(scene.question, "", scene.shape),
            opening_ids(tokenizer, scene.system, scene.question),
            partial(_run_tool, scene, calls),
        )
        for scene, calls in zip(scenes, made, strict=True)
    ]
    golds = [scene.gold_calls() for scene in scenes]
    play_episodes(model, tokenizer, episodes, sample_seed, max_turns=_MAX_TURNS, max_turn_tokens=_MAX_TURN_TOKENS)
    f1_by_shape: defaultdict[str, list[float]] = defaultdict(list)
    for scene, gold, calls in zip(scenes, golds, made, strict=True):
        f1_by_shape[scene.shape].append(2 * len(set(calls) & set(gold)) / (len(calls) + len(gold)))
    return {shape: round(fmean(values), 4) for shape, values in f1_by_shape.items()}


def _run_tool(scene: Scene, made: list[tuple[str, str]], name: str, arguments: dict[str, str]) -> str:
    """The result of a call, which is noted."""
    tool = next((tool for tool in scene.tools if tool.name == name and {tool.parameter} == set(arguments)), None)
    if tool is None:
        raise ToolCallTextError(f"no tool {name!r} with {sorted(arguments)}")
    made.append((name, arguments[tool.parameter]))
    return scene.call(tool, arguments[tool.parameter])


if __name__ == "__main__":
    run_build(build, "reader")
