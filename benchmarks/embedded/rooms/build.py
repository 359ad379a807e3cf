"""`python -m benchmarks.embedded.rooms.build [folder]` writes the shipped questions again, bit for bit."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from benchmarks.embedded.rows import write_questions
from rlf.builtin.encyclopedia.names import NameSplit, split_names
from rlf.builtin.names import builtin_path
from rlf.builtin.rooms.vault import plan_vault, question

_NUM_TRAIN, _NUM_EVALUATION = 1024, 256


def build(folder: Path) -> None:
    """Writes a file for each number of rooms and split that a spec uses into `folder`."""
    for split, names, num_rooms, count in (
        ("train", NameSplit.TRAIN, 5, _NUM_TRAIN),
        ("heldout", NameSplit.HELDOUT, 5, _NUM_EVALUATION),
        ("train_three", NameSplit.TRAIN, 3, _NUM_TRAIN),
    ):
        plans = [plan for plan in map(plan_vault, split_names(names)) if len(plan.order) == num_rooms]
        sample = random.Random(f"rooms:{split}").sample(plans, count)
        write_questions(
            folder / f"{split}.jsonl", ((question(plan), plan.treasure, f"{num_rooms} rooms") for plan in sample)
        )


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else builtin_path("rooms/train").parent)
