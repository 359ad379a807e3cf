"""`python -m benchmarks.embedded.bisect.build [folder]` writes the shipped questions again, bit for bit."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from benchmarks.embedded.bisect.box import NUM_NUMBERS, BoxWide, prize, question
from benchmarks.embedded.rows import write_questions
from rlf.builtin.encyclopedia.names import NameSplit, split_names

_NUM_TRAIN, _NUM_EVALUATION = 1024, 256


def build(folder: Path) -> None:
    """Writes the boxes for training, the held-out ones, and those with more numbers into `folder`."""
    for name, split, num_numbers, count in (
        ("train", NameSplit.TRAIN, NUM_NUMBERS, _NUM_TRAIN),
        ("heldout", NameSplit.HELDOUT, NUM_NUMBERS, _NUM_EVALUATION),
        ("heldout_wide", NameSplit.HELDOUT, BoxWide.num_numbers, _NUM_EVALUATION),
    ):
        boxes = random.Random(f"bisect:{name}").sample(split_names(split), count)
        kind = f"{num_numbers} numbers"
        write_questions(folder / f"{name}.jsonl", ((question(box, num_numbers), prize(box), kind) for box in boxes))


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data")
