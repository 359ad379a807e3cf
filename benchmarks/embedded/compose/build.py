"""`python -m benchmarks.embedded.compose.build [folder]` writes the shipped questions again, bit for bit."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.embedded.compose.almanac import ATTRIBUTES, fact
from benchmarks.embedded.rows import write_questions
from rlf.builtin.encyclopedia.names import NameSplit, split_names

_NUM_TRAIN, _NUM_EVALUATION = 1024, 256
_KINDS = tuple(f"{keyword} {operation}" for keyword in ATTRIBUTES for operation in ("more", "together"))
HELDOUT_KIND = "height more"
"""The composition that no training question asks for."""


def build(folder: Path) -> None:
    """Writes questions for training, held-out names, and the held-out composition of held-out names into `folder`."""
    trained = [kind for kind in _KINDS if kind != HELDOUT_KIND]
    for name, split, kinds, count in (
        ("train", NameSplit.TRAIN, trained, _NUM_TRAIN),
        ("heldout", NameSplit.HELDOUT, trained, _NUM_EVALUATION),
        ("heldout_composition", NameSplit.HELDOUT, [HELDOUT_KIND], _NUM_EVALUATION),
    ):
        rng = random.Random(f"compose:{name}")
        write_questions(folder / f"{name}.jsonl", _draw_questions(rng, split_names(split), kinds, count))


def _draw_questions(
    rng: random.Random, names: tuple[str, ...], kinds: list[str], count: int
) -> Iterator[tuple[str, str, str]]:
    for _ in range(count):
        kind = rng.choice(kinds)
        keyword, _, operation = kind.partition(" ")
        attribute = ATTRIBUTES[keyword]
        x, y = sorted(rng.sample(names, 2), key=lambda name: -fact(name, keyword))
        if operation == "more":
            yield attribute.more.format(x=x, y=y), str(fact(x, keyword) - fact(y, keyword)), kind
        else:
            x, y = rng.sample([x, y], 2)
            yield attribute.together.format(x=x, y=y), str(fact(x, keyword) + fact(y, keyword)), kind


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data")
