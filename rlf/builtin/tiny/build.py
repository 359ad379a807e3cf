"""`python -m rlf.builtin.tiny.build [folder]` makes the shipped checkpoint from nothing.

Tokenizer, skills, policy, card, in this order. Everything is counted in steps and seeded. The figures of the card
are measured at the end; choices are made on the validation world, the held-out world is read for the card alone.

On Linux, glibc should keep memory instead of giving it back between steps; set before the start:
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=268435456 OMP_NUM_THREADS=1
"""

from __future__ import annotations

import dataclasses
import json
import logging
import platform
import sys
import time
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rlf.builtin.encyclopedia import calculator, search, search_disabled, search_shuffled
from rlf.builtin.tiny import CHECKPOINT
from rlf.builtin.tiny.evaluate import Episode, EvaluationQuestion, Tool, play, success_by_kind
from rlf.builtin.tiny.model import create_model, save_checkpoint
from rlf.builtin.tiny.pretrain import PolicyPlan, SkillsPlan, spoil_policy, teach_skills
from rlf.builtin.tiny.tokenizer import build_tokenizer

__all__ = ["build", "read_questions"]

logger = logging.getLogger(__name__)

_SEED = 0
_NUM_CRITERION_QUESTIONS = 256
_TOOLS: dict[str, Tool] = {"search": search, "calculator": calculator}
_DIGITS = 4
_NUM_SAMPLES = 4


def read_questions(split: str) -> list[EvaluationQuestion]:
    """The shipped questions of `split`."""
    text = files("rlf.builtin.encyclopedia").joinpath(f"data/{split}.jsonl").read_text(encoding="utf-8")
    rows = map(json.loads, text.splitlines())
    return [EvaluationQuestion(row["question"], row["answer"], row["kind"]) for row in rows]


def build(folder: Path) -> None:
    """Train both stages and write a checkpoint that transformers loads, with its card, into `folder`."""
    torch.use_deterministic_algorithms(True)
    tokenizer = build_tokenizer()
    model = create_model(tokenizer, _SEED)
    criterion_questions = read_questions("validation")[:_NUM_CRITERION_QUESTIONS]
    skills_plan, policy_plan = SkillsPlan(), PolicyPlan()

    started = time.perf_counter()
    greedy = partial(play, model, tokenizer, _TOOLS, criterion_questions, sample_seed=None)
    teach_skills(model, tokenizer, skills_plan, _SEED, lambda: success_by_kind(greedy()))
    skills_seconds = time.perf_counter() - started
    skilled = _figures(model, tokenizer, "validation", _TOOLS)
    logger.info("skills done: %s", skilled)

    started = time.perf_counter()
    spoil_policy(model, tokenizer, policy_plan, _SEED)
    policy_seconds = time.perf_counter() - started

    save_checkpoint(model, tokenizer, folder)
    card = {
        "model": {"parameters": sum(parameter.numel() for parameter in model.parameters()), "seed": _SEED},
        "skills": {**_plan(skills_plan), "wall_s": round(skills_seconds), "validation": skilled},
        "policy": {**_plan(policy_plan), "wall_s": round(policy_seconds)},
        "base": {split: _figures(model, tokenizer, split, _TOOLS) for split in ("validation", "heldout")},
        "controls": _controls(model, tokenizer),
        "made_with": _describe_environment(),
    }
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    logger.info("policy done: %s", card["base"])


def _figures(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, split: str, tools: dict[str, Tool]
) -> dict[str, Any]:
    """Success by kind on every question of `split`, greedy and sampled at temperature 1, and the episodes' size."""
    questions = read_questions(split)
    greedy = play(model, tokenizer, tools, questions, sample_seed=None)
    sampled = play(model, tokenizer, tools, questions * _NUM_SAMPLES, sample_seed=_SEED)
    return {
        "questions": len(questions),
        "samples_per_question": _NUM_SAMPLES,
        "greedy": _rounded(success_by_kind(greedy)),
        "sampled": _rounded(success_by_kind(sampled)),
        "episode_tokens": _mean([len(episode.token_ids) for episode in sampled]),
        "sampled_tokens": _mean([episode.num_actions for episode in sampled]),
        "successful_episode_tokens": _tokens_by_kind(sampled),
    }


def _controls(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> dict[str, float]:
    """Sampled success on the validation world with a search that finds nothing, and with one that lies."""
    searches: dict[str, Tool] = {"search_disabled": search_disabled, "search_shuffled": search_shuffled}
    return {
        name: _figures(model, tokenizer, "validation", {**_TOOLS, "search": tool})["sampled"]["all"]
        for name, tool in searches.items()
    }


def _tokens_by_kind(episodes: list[Episode]) -> dict[str, float]:
    kinds = sorted({episode.question.kind for episode in episodes if episode.is_success})
    return {
        kind: _mean([len(e.token_ids) for e in episodes if e.is_success and e.question.kind == kind]) for kind in kinds
    }


def _plan(plan: SkillsPlan | PolicyPlan) -> dict[str, Any]:
    fields = dataclasses.asdict(plan)
    if isinstance(plan, PolicyPlan):
        fields["share_by_fault"] = {fault.value: share for fault, share in plan.share_by_fault}
    return {"plan": fields}


def _describe_environment() -> dict[str, str]:
    packages = {name: version(name) for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy")}
    return {"python": platform.python_version(), "machine": platform.machine(), **packages}


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, _DIGITS) for name, value in values.items()}


def _mean(values: list[int]) -> float:
    return round(sum(values) / len(values), 1) if values else 0.0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINT)
