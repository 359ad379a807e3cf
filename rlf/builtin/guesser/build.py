"""`python -m rlf.builtin.guesser.build [folder]` makes the shipped checkpoint from nothing; it needs TextArena.

First the skill, to guess what the hints allow, then the habits of the shipped policy. The game's words are
TextArena's own.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rlf.builtin.guesser import CHECKPOINT
from rlf.builtin.guesser.demonstrations import POLICY, Habit, Wording, build_tokenizer, demonstrate, read_wording
from rlf.builtin.tiny.demonstrations import Demonstration
from rlf.builtin.tiny.model import Shape, create_model, save_checkpoint
from rlf.builtin.tiny.pretrain import PolicyPlan, SkillsPlan, Trainer, cosine_scale, train_on

__all__ = ["build"]

logger = logging.getLogger(__name__)

_BATCH_SIZE = 32
_SHAPE = Shape(hidden=64, intermediate=128, heads=2, kv_heads=2, max_positions=512)


def build(folder: Path, seed: int = 0) -> None:
    """Trains both stages and writes a checkpoint that transformers loads, with its card, into `folder`."""
    torch.use_deterministic_algorithms(True)
    wording = read_wording()
    tokenizer = build_tokenizer(wording)
    model = create_model(tokenizer, seed, _SHAPE)
    skills, policy = SkillsPlan(constant_steps=250, decay_steps=250), PolicyPlan(steps=60, share_by_fault=())
    started = time.process_time()
    trainer = Trainer(model, int(tokenizer.pad_token_id), skills.muon_rate, skills.adamw_rate, context_weight=0.0)
    train_on(trainer, lambda step: _rows(tokenizer, wording, f"skill:{seed}:{step}", {Habit.INSIDE: 1.0}), skills)
    _spoil(model, tokenizer, wording, policy, seed)
    cpu_s = round(time.process_time() - started)
    save_checkpoint(model.bfloat16(), tokenizer, folder)
    card = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seed": seed,
        "skills": dataclasses.asdict(skills),
        "policy": {"steps": policy.steps, "habits": {str(habit): share for habit, share in POLICY.items()}},
        "cpu_s": cpu_s,
    }
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


def _rows(
    tokenizer: PreTrainedTokenizerFast, wording: Wording, seed: str, habits: Mapping[Habit, float]
) -> list[Demonstration]:
    rng = random.Random(f"guesser:{seed}")
    return [demonstrate(tokenizer, wording, rng, habits) for _ in range(_BATCH_SIZE)]


def _spoil(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, wording: Wording, plan: PolicyPlan, seed: int
) -> None:
    """Teaches the habits, with a decaying rate."""
    trainer = Trainer(model, int(tokenizer.pad_token_id), plan.muon_rate, plan.adamw_rate, context_weight=0.0)
    for step in range(plan.steps):
        loss = trainer.step(_rows(tokenizer, wording, f"policy:{seed}:{step}", POLICY), cosine_scale(step, plan.steps))
    logger.info("policy: loss %.4f after %d steps", loss, plan.steps)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINT, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
