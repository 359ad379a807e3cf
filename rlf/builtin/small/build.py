"""`python -m rlf.builtin.small.build [folder]` makes the shipped checkpoint from nothing.

Tokenizer, starting weights, skills, policy, card, in this order. Set the allocator as for `rlf.builtin.tiny.build`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import platform
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rlf.builtin.small import CHECKPOINT
from rlf.builtin.small.demonstrations import sample_task
from rlf.builtin.small.lookups import LOOKUP_KINDS, sample_lookup
from rlf.builtin.small.pretrain import POLICY_PLAN, SKILLS_PLAN, PolicyPlan, spoil_policy, teach_skills
from rlf.builtin.small.programs import COMPOSED_PROGRAMS, PROGRAM_KINDS, sample_program
from rlf.builtin.small.queries import COMPOSED_KINDS, QUERY_KINDS, sample_query
from rlf.builtin.small.task import Task
from rlf.builtin.small.tokenizer import build_tokenizer
from rlf.builtin.small.weights import start_copying
from rlf.builtin.small.words import HELDOUT_COLUMNS
from rlf.builtin.tiny.evaluate import Episode, EvaluationQuestion, play_episodes, success_by_kind
from rlf.builtin.tiny.layout import opening_ids
from rlf.builtin.tiny.model import Shape, create_model, save_checkpoint
from rlf.builtin.tiny.pretrain import SkillsPlan

__all__ = ["SHAPE", "build", "heldout_tasks", "play_tasks"]

logger = logging.getLogger(__name__)

SHAPE = Shape(hidden=128, intermediate=256, layers=4, heads=4, kv_heads=4)
_SEED = 0
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
    task_by_episode: dict[int, Task] = {}
    episodes = []
    for group, tasks in groups.items():
        for task in tasks:
            question = EvaluationQuestion(task.question, task.answer, group)
            episodes.append(Episode(question, opening_ids(tokenizer, task.system, task.question)))
            task_by_episode[id(episodes[-1])] = task

    def run_call(episode: Episode, name: str, arguments: dict[str, str]) -> str:
        return task_by_episode[id(episode)].run(name, arguments)

    play_episodes(model, tokenizer, episodes, run_call, sample_seed, max_turns=3, max_turn_tokens=_MAX_TURN_TOKENS)
    return {group: round(share, _DIGITS) for group, share in success_by_kind(episodes).items() if group != "all"}


def build(folder: Path) -> None:
    """Train both stages and write a checkpoint that transformers loads, with its card, into `folder`."""
    torch.use_deterministic_algorithms(True)
    tokenizer = build_tokenizer()
    model = create_model(tokenizer, _SEED, SHAPE)
    start_copying(model, _SEED)
    groups = heldout_tasks(_NUM_TASKS)

    started = time.process_time()
    teach_skills(model, tokenizer, SKILLS_PLAN, _SEED)
    skills_seconds = time.process_time() - started
    skilled = play_tasks(model, tokenizer, groups, None)
    logger.info("skills done: %s", skilled)
    if min(skilled[group] for group in _MUST_KNOW) < SKILLS_PLAN.criterion:
        raise RuntimeError(
            f"skills end at {skilled}; {_MUST_KNOW} must reach {SKILLS_PLAN.criterion}. Try another seed."
        )

    started = time.process_time()
    spoil_policy(model, tokenizer, POLICY_PLAN, _SEED)
    policy_seconds = time.process_time() - started
    save_checkpoint(model, tokenizer, folder)
    card = {
        "model": {"parameters": sum(parameter.numel() for parameter in model.parameters()), "seed": _SEED},
        "tasks_for_each_skill": _NUM_TASKS,
        "skills": {**_plan(SKILLS_PLAN), "cpu_s": round(skills_seconds), "greedy": skilled},
        "policy": {**_plan(POLICY_PLAN), "cpu_s": round(policy_seconds)},
        "base": {
            "greedy": play_tasks(model, tokenizer, groups, None),
            "sampled": play_tasks(model, tokenizer, groups, _SEED),
        },
        "made_with": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            **{name: version(name) for name in ("torch", "transformers", "tokenizers", "safetensors")},
        },
    }
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    logger.info("policy done: %s", card["base"])


def _plan(plan: SkillsPlan | PolicyPlan) -> dict[str, Any]:
    fields = dataclasses.asdict(plan)
    if isinstance(plan, PolicyPlan):
        fields["share_by_fault"] = {fault.value: share for fault, share in plan.share_by_fault}
    return {"plan": fields}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINT)
