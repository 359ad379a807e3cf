"""`python -m benchmarks.embedded.small.build [folder [seed]]` makes the shipped checkpoint from nothing.

Tokenizer, starting weights, skills, policy, card, in this order. Set the allocator as
for `benchmarks.embedded.tiny.build`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.recipe import Recipe
from benchmarks.embedded.small.demonstrations import sample_task
from benchmarks.embedded.small.lookups import LOOKUP_KINDS, sample_lookup
from benchmarks.embedded.small.pretrain import POLICY_PLAN, SKILLS_PLAN, make_stages
from benchmarks.embedded.small.programs import COMPOSED_PROGRAMS, PROGRAM_KINDS, sample_program
from benchmarks.embedded.small.queries import COMPOSED_KINDS, QUERY_KINDS, sample_query
from benchmarks.embedded.small.task import Task
from benchmarks.embedded.small.tokenizer import build_tokenizer
from benchmarks.embedded.small.words import HELDOUT_COLUMNS
from benchmarks.embedded.tiny.build import describe_environment, describe_plan
from benchmarks.embedded.tiny.evaluate import Episode, EvaluationQuestion, play_episodes, success_by_kind
from benchmarks.embedded.tiny.layout import opening_ids
from benchmarks.embedded.tiny.model import Shape, run_build, save_checkpoint
from benchmarks.embedded.tiny.pretrain import train_habits, train_skills

logger = logging.getLogger(__name__)

SHAPE = Shape(hidden=128, intermediate=256, layers=4, heads=4, kv_heads=4)
_NUM_TASKS = 64
_MAX_TURN_TOKENS = 90
_DIGITS = 4
_MUST_KNOW = ("cell", "cell_new_columns", "queries", "programs")
"""Groups of tasks that have to reach the criterion at the end of the first stage."""


def heldout_tasks(number: int, seed: str = "heldout") -> dict[str, list[Task]]:
    """Tasks that no batch of pretraining has, `number` for each skill, from a generator of their own.

    Names, codes and table words are drawn anew. `cell_new_columns` has only columns that pretraining never shows;
    `composed_...` are combinations of queries and of programs that it never shows.
    """
    rng = random.Random(seed)
    sample_by_group: dict[str, Callable[[], Task]] = {
        **{kind: partial(sample_lookup, rng, kind) for kind in LOOKUP_KINDS},
        "cell_new_columns": partial(sample_lookup, rng, "cell", HELDOUT_COLUMNS),
        "queries": lambda: sample_task(rng, rng.choice(QUERY_KINDS)),
        "programs": lambda: sample_task(rng, rng.choice(PROGRAM_KINDS)),
        **{f"composed_{kind}": partial(sample_query, rng, kind) for kind in COMPOSED_KINDS},
        **{f"composed_{kind}": partial(sample_program, rng, kind) for kind in COMPOSED_PROGRAMS},
    }
    return {group: [sample() for _ in range(number)] for group, sample in sample_by_group.items()}


def play_tasks(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, groups: dict[str, list[Task]], sample_seed: int | None
) -> dict[str, float]:
    """Success under each group: the right call, to the letter, and the right answer from its result."""
    episodes = [
        Episode(
            EvaluationQuestion(task.question, task.answer, group),
            opening_ids(tokenizer, task.system, task.question),
            task.run,
        )
        for group, tasks in groups.items()
        for task in tasks
    ]
    play_episodes(model, tokenizer, episodes, sample_seed, max_turns=3, max_turn_tokens=_MAX_TURN_TOKENS)
    return {group: round(share, _DIGITS) for group, share in success_by_kind(episodes).items() if group != "all"}


def recipe(seed: int = 0) -> Recipe:
    """What is trained, on what."""
    tokenizer = build_tokenizer()
    return Recipe(tokenizer, seed, *make_stages(tokenizer, seed, SKILLS_PLAN, POLICY_PLAN), SHAPE)


def build(folder: Path, seed: int = 0) -> None:
    """Train both stages and write a checkpoint that transformers loads, with its card, into `folder`."""
    made = recipe(seed)
    tokenizer, model = made.tokenizer, made.create_model()
    groups = heldout_tasks(_NUM_TASKS)

    started = time.process_time()
    train_skills(model, tokenizer, made.skills)
    skills_seconds = time.process_time() - started
    skilled = play_tasks(model, tokenizer, groups, None)
    logger.info("skills done: %s", skilled)
    if min(skilled[group] for group in _MUST_KNOW) < SKILLS_PLAN.criterion:
        raise RuntimeError(
            f"skills end at {skilled}; {_MUST_KNOW} must reach {SKILLS_PLAN.criterion}. Try another seed."
        )

    started = time.process_time()
    train_habits(model, tokenizer, made.habits)
    policy_seconds = time.process_time() - started
    card = {
        "model": {"parameters": model.num_parameters(), "seed": seed},
        "tasks_for_each_skill": _NUM_TASKS,
        "skills": {**describe_plan(SKILLS_PLAN), "cpu_s": round(skills_seconds), "greedy": skilled},
        "policy": {**describe_plan(POLICY_PLAN), "cpu_s": round(policy_seconds)},
        "base": {
            "greedy": play_tasks(model, tokenizer, groups, None),
            "sampled": play_tasks(model, tokenizer, groups, 0),
        },
        "made_with": describe_environment(),
    }
    save_checkpoint(model, tokenizer, folder, card, made.digest())


if __name__ == "__main__":
    run_build(build, "small")
