"""`python -m rlf.builtin.prober.build [folder] [seed]` makes the shipped checkpoint from nothing, in minutes.

First the skill, to probe at random where the number may be, then the habits of the shipped policy. Nothing bisects.
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

from rlf.builtin.bisect.demonstrations import Habit, demonstrate, drill
from rlf.builtin.encyclopedia.world import Split, split_names
from rlf.builtin.games.evaluate import play_game
from rlf.builtin.games.tokenizer import build_tokenizer
from rlf.builtin.prober import CHECKPOINT
from rlf.builtin.small.weights import start_copying
from rlf.builtin.tiny.demonstrations import Demonstration
from rlf.builtin.tiny.model import Shape, create_model, round_weights, save_checkpoint
from rlf.builtin.tiny.pretrain import SkillsPlan, Trainer, cosine_scale, train_on

__all__ = ["POLICY", "build"]

logger = logging.getLogger(__name__)

_NUM_DRILLS, _NUM_WHOLE = 16, 16
_SHAPE = Shape(kv_heads=4, intermediate=128, max_positions=512)
_HABIT_STEPS, _HABIT_SCALE = 60, 0.1
POLICY = {Habit.INSIDE: 0.32, Habit.GIVE_UP: 0.68}
"""How often the shipped policy follows each habit, drawn again for each probe."""


def build(folder: Path, seed: int = 0) -> None:
    """Trains both stages and writes a checkpoint that transformers loads, with its card, into `folder`."""
    torch.use_deterministic_algorithms(True)
    tokenizer = build_tokenizer()
    model = create_model(tokenizer, seed, _SHAPE)
    start_copying(model, seed)
    plan = SkillsPlan(constant_steps=220, decay_steps=180)
    started = time.process_time()
    trainer = Trainer(model, int(tokenizer.pad_token_id), plan.muon_rate, plan.adamw_rate, context_weight=0.0)
    train_on(trainer, lambda step: _rows(tokenizer, f"skill:{seed}:{step}", {Habit.INSIDE: 1.0}), plan)
    skill = play_game(model, tokenizer, "bisect/heldout", num_samples=1, sample_seed=0)
    _teach_habits(model, tokenizer, plan, seed)
    round_weights(model)
    base = play_game(model, tokenizer, "bisect/heldout", num_samples=2, sample_seed=0)
    card = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seed": seed,
        "skills": dataclasses.asdict(plan),
        "habits": {
            "steps": _HABIT_STEPS,
            "scale": _HABIT_SCALE,
            "shares": {str(habit): share for habit, share in POLICY.items()},
        },
        "cpu_s": round(time.process_time() - started),
        "after_skills": {"sampled": round(skill.success, 4), "calls": round(skill.calls, 2)},
        "base": {"sampled": round(base.success, 4), "calls": round(base.calls, 2)},
    }
    save_checkpoint(model.bfloat16(), tokenizer, folder)
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    logger.info("done: %s", card)


def _teach_habits(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, plan: SkillsPlan, seed: int) -> None:
    """The second stage, with a decaying rate."""
    trainer = Trainer(model, int(tokenizer.pad_token_id), plan.muon_rate, plan.adamw_rate, context_weight=0.0)
    for step in range(_HABIT_STEPS):
        scale = _HABIT_SCALE * cosine_scale(step, _HABIT_STEPS)
        loss = trainer.step(_rows(tokenizer, f"habits:{seed}:{step}", POLICY), scale)
    logger.info("habits: loss %.4f after %d steps", loss, _HABIT_STEPS)


def _rows(tokenizer: PreTrainedTokenizerFast, seed: str, habits: Mapping[Habit, float]) -> list[Demonstration]:
    rng, names = random.Random(f"prober:{seed}"), split_names(Split.TRAIN)

    def draw_habit() -> Habit:
        return rng.choices(list(habits), list(habits.values()))[0]

    drills = [drill(tokenizer, rng, rng.choice(names), draw_habit) for _ in range(_NUM_DRILLS)]
    whole = [demonstrate(tokenizer, rng, rng.choice(names), draw_habit, has_notes=True) for _ in range(_NUM_WHOLE)]
    return drills + whole


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINT, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
