"""`python -m rlf.builtin.reader.build [folder [seed]]` makes the shipped checkpoint from nothing.

First the skill on shorter and longer questions, then the habits of the shipped policy. Steps are counted and seeded, so
that a machine's speed changes nothing. Weights are stored as bfloat16, rounded before the card measures them.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rlf.builtin.reader import CHECKPOINT
from rlf.builtin.reader.demonstrations import POLICY, SHAPES, Habit, Scene, copy_words, demonstrate, draw_scene
from rlf.builtin.reader.tokenizer import build_tokenizer
from rlf.builtin.small.weights import start_copying
from rlf.builtin.tiny.demonstrations import Demonstration
from rlf.builtin.tiny.evaluate import Episode, EvaluationQuestion, play_episodes
from rlf.builtin.tiny.layout import ToolCallTextError, opening_ids
from rlf.builtin.tiny.model import Shape, create_model, round_weights, save_checkpoint
from rlf.builtin.tiny.pretrain import PolicyPlan, SkillsPlan, Trainer, cosine_scale, train_on

__all__ = ["build"]

logger = logging.getLogger(__name__)

_SHAPE = Shape(hidden=128, intermediate=128, layers=4, kv_heads=4)
_NUM_COPIES = 6
_NUM_SHORT, _NUM_LONG = 40, 24
"""Rows of a batch: questions of one call, or of any shape."""
_SHORT_STEPS = 100
_NUM_CHUNKS = 3
_NUM_FIGURES, _MAX_TURN_TOKENS, _MAX_TURNS = 48, 200, 5
_NO_CONTEXT = 0.0


def build(folder: Path, seed: int = 0) -> None:
    """Trains both stages and writes a checkpoint that transformers loads, with its card, into `folder`."""
    torch.use_deterministic_algorithms(True)
    tokenizer = build_tokenizer()
    model = create_model(tokenizer, seed, _SHAPE)
    start_copying(model, seed)
    skills = SkillsPlan(constant_steps=260, decay_steps=200)
    policy = PolicyPlan(steps=70, share_by_fault=())
    started = time.process_time()
    trainer = Trainer(model, int(tokenizer.pad_token_id), skills.muon_rate, skills.adamw_rate, _NO_CONTEXT)
    train_on(trainer, lambda step: _skills_batch(tokenizer, step, f"reader:{seed}:{step}"), skills, _NUM_CHUNKS)
    skilled = _measure_shapes(model, tokenizer)
    logger.info("skills done: %s", skilled)
    _spoil(model, tokenizer, policy, seed)
    cpu_s = round(time.process_time() - started)
    round_weights(model)
    card = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seed": seed,
        "skills": {"plan": dataclasses.asdict(skills), "unseen_documents": skilled},
        "policy": {"steps": policy.steps, "habits": {str(habit): share for habit, share in POLICY.items()}},
        "cpu_s": cpu_s,
        "base": _measure_shapes(model, tokenizer),
    }
    save_checkpoint(model.bfloat16(), tokenizer, folder)
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    logger.info("done: %s", card["base"])


def _skills_batch(tokenizer: PreTrainedTokenizerFast, step: int, seed: str) -> list[Demonstration]:
    rng = random.Random(seed)
    rows = [copy_words(tokenizer, rng) for _ in range(_NUM_COPIES)]
    if step < _SHORT_STEPS:
        return rows + [demonstrate(tokenizer, draw_scene(rng, "single", 6), Habit.RIGHT) for _ in range(_NUM_SHORT)]
    shapes = rng.choices(list(SHAPES), list(SHAPES.values()), k=_NUM_LONG)
    return rows + [demonstrate(tokenizer, draw_scene(rng, shape), Habit.RIGHT) for shape in shapes]


def _spoil(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, plan: PolicyPlan, seed: int) -> None:
    """Teaches the habits, with a decaying rate."""
    trainer = Trainer(model, int(tokenizer.pad_token_id), plan.muon_rate, plan.adamw_rate, _NO_CONTEXT)
    for step in range(plan.steps):
        rng = random.Random(f"reader-policy:{seed}:{step}")
        habits = rng.choices(list(POLICY), list(POLICY.values()), k=_NUM_LONG)
        shapes = rng.choices(list(SHAPES), list(SHAPES.values()), k=_NUM_LONG)
        rows = [
            demonstrate(tokenizer, draw_scene(rng, shape), habit) for shape, habit in zip(shapes, habits, strict=True)
        ]
        loss = trainer.step(rows, cosine_scale(step, plan.steps), _NUM_CHUNKS)
    logger.info("policy: loss %.4f after %d steps", loss, plan.steps)


def _measure_shapes(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> dict[str, dict[str, float]]:
    """Solve-F1 on unseen documents by shape, greedy and sampled at temperature 1."""
    rng = random.Random("reader:heldout")
    scenes = [draw_scene(rng, shape) for shape in SHAPES for _ in range(_NUM_FIGURES)]
    return {"greedy": _solve_f1(model, tokenizer, scenes, None), "sampled": _solve_f1(model, tokenizer, scenes, 0)}


def _solve_f1(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, scenes: Sequence[Scene], sample_seed: int | None
) -> dict[str, float]:
    episodes = [
        Episode(
            EvaluationQuestion(scene.question, "", scene.shape), opening_ids(tokenizer, scene.system, scene.question)
        )
        for scene in scenes
    ]
    scene_by_episode = {id(episode): scene for episode, scene in zip(episodes, scenes, strict=True)}
    golds = {id(scene): scene.gold_calls() for scene in scenes}
    made: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)

    def run(episode: Episode, name: str, arguments: Mapping[str, str]) -> str:
        scene = scene_by_episode[id(episode)]
        tool = next((tool for tool in scene.tools if tool.name == name and {tool.parameter} == set(arguments)), None)
        if tool is None:
            raise ToolCallTextError(f"no tool {name!r} with {sorted(arguments)}")
        made[id(scene)].append((name, arguments[tool.parameter]))
        return scene.call(tool, arguments[tool.parameter])

    play_episodes(model, tokenizer, episodes, run, sample_seed, max_turns=_MAX_TURNS, max_turn_tokens=_MAX_TURN_TOKENS)
    f1_by_shape: defaultdict[str, list[float]] = defaultdict(list)
    for scene in scenes:
        calls, gold = made[id(scene)], golds[id(scene)]
        f1_by_shape[scene.shape].append(2 * len(set(calls) & set(gold)) / (len(calls) + len(gold)))
    return {shape: round(fmean(values), 4) for shape, values in f1_by_shape.items()}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINT, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
