"""`python -m benchmarks.embedded.clerk.build [folder [seed]]` makes the shipped checkpoint from nothing.

First every skill by itself, then the habits of the shipped policy. Steps are counted and seeded, so that a machine's
speed changes nothing. Held-out customers are seen by the card alone.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.clerk.demonstrations import ANSWER, POLICY, Habit, demonstrate, run_call
from benchmarks.embedded.clerk.tokenizer import SYSTEM, build_tokenizer
from benchmarks.embedded.recipe import Recipe
from benchmarks.embedded.shop.tasks import ShopTask, TaskKind, draw_task
from benchmarks.embedded.tiny.demonstrations import Demonstration, copy_drill
from benchmarks.embedded.tiny.evaluate import Episode, EvaluationQuestion, play_episodes
from benchmarks.embedded.tiny.layout import ToolCallTextError, opening_ids
from benchmarks.embedded.tiny.model import Shape, round_weights, run_build, save_checkpoint
from benchmarks.embedded.tiny.pretrain import HabitsPlan, SkillsPlan, Stage, train_habits, train_skills
from rlf.builtin.encyclopedia.names import NameSplit
from rlf.builtin.shop.world import Shop

logger = logging.getLogger(__name__)

_NUM_TASKS, _NUM_COPY_DRILLS = 13, 3
"""Rows of a batch: tasks of each kind, and drills."""
_NUM_FIGURES, _MAX_TURN_TOKENS = 256, 60


def recipe(seed: int = 0) -> Recipe:
    """What is trained, on what."""
    tokenizer, policy = build_tokenizer(), HabitsPlan(steps=80)

    def habits_batch(step: int) -> list[Demonstration]:
        return _habits_batch(tokenizer, f"clerk-policy:{seed}:{step}", policy.batch_size)

    return Recipe(
        tokenizer,
        seed,
        Stage(
            SkillsPlan(constant_steps=150, decay_steps=200),
            lambda step: _skills_batch(tokenizer, f"clerk:{seed}:{step}"),
        ),
        Stage(policy, habits_batch),
        Shape(kv_heads=4, max_positions=512),
    )


def build(folder: Path, seed: int = 0) -> None:
    """Trains both stages and writes a checkpoint that transformers loads, with its card, into `folder`."""
    made = recipe(seed)
    tokenizer, model = made.tokenizer, made.create_model()
    started = time.process_time()
    train_skills(model, tokenizer, made.skills)
    skilled = _measure_figures(model, tokenizer)
    logger.info("skills done: %s", skilled)
    train_habits(model, tokenizer, made.habits)
    cpu_s = round(time.process_time() - started)
    round_weights(model)
    card = {
        "parameters": model.num_parameters(),
        "seed": seed,
        "skills": {"plan": dataclasses.asdict(made.skills.plan), "heldout": skilled},
        "policy": {"steps": made.habits.num_steps, "habits": {str(habit): share for habit, share in POLICY.items()}},
        "cpu_s": cpu_s,
        "base": _measure_figures(model, tokenizer),
    }
    save_checkpoint(model.bfloat16(), tokenizer, folder, card, made.digest())


def _skills_batch(tokenizer: PreTrainedTokenizerFast, seed: str) -> list[Demonstration]:
    rng = random.Random(seed)
    kinds = [kind for kind in TaskKind for _ in range(_NUM_TASKS)]
    drills = [copy_drill(tokenizer, rng, 8) for _ in range(_NUM_COPY_DRILLS)]
    return [*drills, *(demonstrate(tokenizer, rng, Habit.RIGHT, kind) for kind in kinds)]


def _habits_batch(tokenizer: PreTrainedTokenizerFast, seed: str, size: int) -> list[Demonstration]:
    rng = random.Random(seed)
    habits = rng.choices(list(POLICY), list(POLICY.values()), k=size)
    return [demonstrate(tokenizer, rng, habit) for habit in habits]


def _measure_figures(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """Share of held-out tasks whose goal is reached, by kind, greedy and sampled at temperature 1."""
    rng = random.Random("orders:heldout")
    kinds = list(TaskKind)
    tasks = [draw_task(rng, NameSplit.HELDOUT, kinds[number % len(kinds)]) for number in range(_NUM_FIGURES)]
    return {
        "greedy": _measure_success(model, tokenizer, tasks, None),
        "sampled": _measure_success(model, tokenizer, tasks * 2, 0),
    }


def _measure_success(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, tasks: list[ShopTask], sample_seed: int | None
) -> dict[str, float]:
    shops = [task.open_shop() for task in tasks]
    episodes = [
        Episode(
            EvaluationQuestion(task.question, ANSWER, task.kind),
            opening_ids(tokenizer, SYSTEM, task.question),
            partial(_run_tool, shop),
        )
        for task, shop in zip(tasks, shops, strict=True)
    ]
    play_episodes(model, tokenizer, episodes, sample_seed, max_turn_tokens=_MAX_TURN_TOKENS)
    return _mean_goals([task.kind for task in tasks], shops)


def _run_tool(shop: Shop, name: str, arguments: dict[str, str]) -> str:
    if set(arguments) != _ARGUMENTS.get(name):
        raise ToolCallTextError(f"no tool {name!r} with {sorted(arguments)}")
    return run_call(shop, name, arguments)


_ARGUMENTS = {
    "orders": {"customer"},
    "cancel": {"number"},
    "refund": {"number"},
    "buy": {"customer", "product"},
}


def _mean_goals(kinds: list[TaskKind], shops: list[Shop]) -> dict[str, float]:
    goals = [shop.score()["goal"] for shop in shops]
    by_kind = {
        str(kind): [goal for goal, other in zip(goals, kinds, strict=True) if other is kind] for kind in TaskKind
    }
    return {name: round(sum(values) / len(values), 4) for name, values in (*by_kind.items(), ("all", goals))}


if __name__ == "__main__":
    run_build(build, "clerk")
