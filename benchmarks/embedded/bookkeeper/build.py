"""`python -m benchmarks.embedded.bookkeeper.build [folder [seed]]` makes a base that has only read: pages of the shop.

A page is a customer's wish, the orders that the shop lists, and what was done, in the shop's own words. No page holds a
tool call, a mark of one, a role or the end of a turn, so that the base never writes a valid call: what it can is copy a
name or a number, and choose the order that a wish is about.
"""

from __future__ import annotations

import logging
import random
import time
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.clerk.demonstrations import run_call
from benchmarks.embedded.clerk.tokenizer import build_tokenizer
from benchmarks.embedded.recipe import Recipe
from benchmarks.embedded.shop.tasks import TaskKind, draw_task, find_gold
from benchmarks.embedded.tiny.demonstrations import Demonstration, copy_drill
from benchmarks.embedded.tiny.model import Shape, round_weights, run_build, save_checkpoint
from benchmarks.embedded.tiny.pretrain import HabitsPlan, SkillsPlan, Stage, train_skills
from benchmarks.embedded.tiny.tokenizer import END_OF_TEXT
from rlf.builtin.encyclopedia.names import NameSplit

logger = logging.getLogger(__name__)

_NUM_PAGES, _NUM_COPY_DRILLS = 39, 3
"""Rows of a batch."""


def recipe(seed: int = 0) -> Recipe:
    """What is trained, on what."""
    tokenizer = build_tokenizer()

    def batch(step: int) -> list[Demonstration]:
        rng = random.Random(f"bookkeeper:{seed}:{step}")
        drills = [copy_drill(tokenizer, rng, 8) for _ in range(_NUM_COPY_DRILLS)]
        return [*drills, *(write_page(tokenizer, rng) for _ in range(_NUM_PAGES))]

    plan = SkillsPlan(constant_steps=250, decay_steps=250)
    return Recipe(
        tokenizer, seed, Stage(plan, batch), Stage(HabitsPlan(steps=1), batch), Shape(kv_heads=4, max_positions=512)
    )


def write_page(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> Demonstration:
    """A wish, the orders, what was done: plain text that ends as texts do."""
    task = draw_task(rng, NameSplit.TRAIN, rng.choice(list(TaskKind)))
    shop, row = task.open_shop(), Demonstration(tokenizer)
    said = [run_call(shop, *call) for call in find_gold(task)]
    shop.close()
    row.read(tokenizer.encode(f"{task.question}\n"))
    row.act(tokenizer.encode(f"{task.customer}, "))
    row.read(tokenizer.encode(f"{said[0]}\n"))
    row.act(tokenizer.encode(", ".join([*said[1:], "done"])))
    row.act([tokenizer.convert_tokens_to_ids(END_OF_TEXT)])
    return row


def build(folder: Path, seed: int = 0) -> None:
    """Trains on pages and writes a checkpoint that transformers loads, with its card, into `folder`."""
    made = recipe(seed)
    tokenizer, model = made.tokenizer, made.create_model()
    started = time.process_time()
    train_skills(model, tokenizer, made.skills)
    round_weights(model)
    card = {"parameters": model.num_parameters(), "seed": seed, "cpu_s": round(time.process_time() - started)}
    save_checkpoint(model.bfloat16(), tokenizer, folder, card, made.digest())


if __name__ == "__main__":
    run_build(build, "bookkeeper")
