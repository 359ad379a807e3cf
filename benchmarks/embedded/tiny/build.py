"""`python -m benchmarks.embedded.tiny.build [folder [seed]]` makes the shipped checkpoint from nothing.

Tokenizer, skills, policy, card, in this order. Everything is counted in steps and seeded. The figures of the card
are measured at the end; choices are made on the validation world, the held-out world is read for the card alone.

On Linux, glibc should keep memory instead of giving it back between steps; set before the start:
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=268435456 OMP_NUM_THREADS=1
"""

from __future__ import annotations

import dataclasses
import logging
import platform
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.recipe import Recipe
from benchmarks.embedded.tiny.evaluate import Episode, Tool, play, read_questions, success_by_kind
from benchmarks.embedded.tiny.model import run_build, save_checkpoint
from benchmarks.embedded.tiny.pretrain import (
    HabitsPlan,
    PolicyPlan,
    SkillsPlan,
    make_stages,
    teach_skills,
    train_habits,
)
from benchmarks.embedded.tiny.tokenizer import build_tokenizer
from rlf.builtin.encyclopedia import calculator, search, search_disabled, search_shuffled

logger = logging.getLogger(__name__)

_NUM_CRITERION_QUESTIONS = 256
SKILLS_PLAN, POLICY_PLAN = SkillsPlan(), PolicyPlan()
_TOOLS: dict[str, Tool] = {"search": search, "calculator": calculator}
_DIGITS = 4
_NUM_SAMPLES = 4


def recipe(seed: int = 0) -> Recipe:
    """What is trained, on what."""
    tokenizer = build_tokenizer()
    return Recipe(tokenizer, seed, *make_stages(tokenizer, seed, SKILLS_PLAN, POLICY_PLAN), copies=False)


def build(folder: Path, seed: int = 0) -> None:
    """Train both stages and write a checkpoint that transformers loads, with its card, into `folder`."""
    made = recipe(seed)
    tokenizer, model = made.tokenizer, made.create_model()
    criterion_questions = read_questions("encyclopedia/validation")[:_NUM_CRITERION_QUESTIONS]

    started = time.perf_counter()
    greedy = partial(play, model, tokenizer, _TOOLS, criterion_questions, sample_seed=None)
    teach_skills(model, tokenizer, made.skills, SKILLS_PLAN.criterion, lambda: success_by_kind(greedy()))
    skills_seconds = time.perf_counter() - started
    skilled = _measure_figures(model, tokenizer, "validation", _TOOLS)
    logger.info("skills done: %s", skilled)

    started = time.perf_counter()
    train_habits(model, tokenizer, made.habits)
    policy_seconds = time.perf_counter() - started

    card = {
        "model": {"parameters": model.num_parameters(), "seed": seed},
        "skills": {**describe_plan(SKILLS_PLAN), "wall_s": round(skills_seconds), "validation": skilled},
        "policy": {**describe_plan(POLICY_PLAN), "wall_s": round(policy_seconds)},
        "base": {split: _measure_figures(model, tokenizer, split, _TOOLS) for split in ("validation", "heldout")},
        "controls": _measure_controls(model, tokenizer),
        "made_with": describe_environment(),
    }
    save_checkpoint(model, tokenizer, folder, card, made.digest())


def _measure_figures(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, split: str, tools: dict[str, Tool]
) -> dict[str, Any]:
    """Success by kind on every question of `split`, greedy and sampled at temperature 1, and the episodes' size."""
    questions = read_questions(f"encyclopedia/{split}")
    greedy = play(model, tokenizer, tools, questions, sample_seed=None)
    sampled = play(model, tokenizer, tools, questions * _NUM_SAMPLES, sample_seed=0)
    return {
        "questions": len(questions),
        "samples_per_question": _NUM_SAMPLES,
        "greedy": _round_values(success_by_kind(greedy)),
        "sampled": _round_values(success_by_kind(sampled)),
        "episode_tokens": _compute_mean([len(episode.token_ids) for episode in sampled]),
        "sampled_tokens": _compute_mean([episode.num_actions for episode in sampled]),
        "successful_episode_tokens": _tokens_by_kind(sampled),
    }


def _measure_controls(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> dict[str, float]:
    """Sampled success on the validation world with a search that finds nothing, and with one that lies."""
    searches: dict[str, Tool] = {"search_disabled": search_disabled, "search_shuffled": search_shuffled}
    return {
        name: _measure_figures(model, tokenizer, "validation", {**_TOOLS, "search": tool})["sampled"]["all"]
        for name, tool in searches.items()
    }


def _tokens_by_kind(episodes: list[Episode]) -> dict[str, float]:
    kinds = sorted({episode.question.kind for episode in episodes if episode.is_success})
    return {
        kind: _compute_mean([len(e.token_ids) for e in episodes if e.is_success and e.question.kind == kind])
        for kind in kinds
    }


def describe_plan(plan: SkillsPlan | HabitsPlan) -> dict[str, Any]:
    """A plan as the card has it."""
    fields = dataclasses.asdict(plan)
    if "share_by_fault" in fields:
        fields["share_by_fault"] = {fault.value: share for fault, share in fields["share_by_fault"]}
    return {"plan": fields}


def describe_environment() -> dict[str, str]:
    """Versions of what computes, as the card has them."""
    packages = {name: version(name) for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy")}
    return {"python": platform.python_version(), "machine": platform.machine(), **packages}


def _round_values(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, _DIGITS) for name, value in values.items()}


def _compute_mean(values: list[int]) -> float:
    return round(sum(values) / len(values), 1) if values else 0.0


if __name__ == "__main__":
    run_build(build, "tiny")
