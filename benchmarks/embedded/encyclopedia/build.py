"""`python -m benchmarks.embedded.encyclopedia.build [folder]` writes the shipped data again, bit for bit.

One world for each split, one corpus over all three, in a fixed order.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.embedded.encyclopedia.questions import Question, sample_kind, sample_question
from benchmarks.embedded.encyclopedia.world import Encyclopedia, WorldSize, generate_world
from benchmarks.embedded.rows import write_questions, write_rows
from rlf.builtin.encyclopedia.names import NameSplit
from rlf.builtin.names import builtin_path

_WORLD_SEED = 0
_QUESTION_SEED = 0


class _SplitPlan(NamedTuple):
    size: WorldSize
    num_questions: int


_EVALUATION = _SplitPlan(WorldSize(persons=160, towns=100, rivers=100, companies=100, countries=80), 512)
_PLANS: dict[NameSplit, _SplitPlan] = {
    NameSplit.TRAIN: _SplitPlan(WorldSize(persons=700, towns=400, rivers=400, companies=400, countries=300), 4608),
    NameSplit.VALIDATION: _EVALUATION,
    NameSplit.HELDOUT: _EVALUATION,
}


def generate_split_world(split: NameSplit) -> Encyclopedia:
    """The one world that the questions of `split` are about."""
    return generate_world(_WORLD_SEED, split, _PLANS[split].size)


def build(folder: Path) -> None:
    """Write corpus.jsonl and one question file for each split into `folder`."""
    passages: list[dict[str, str]] = []
    for split in NameSplit:
        world = generate_split_world(split)
        passages += [
            {"text": fact.passage, "relation": fact.relation, "subject": fact.subject, "value": fact.value}
            for fact in world.fact_by_key.values()
        ]
        write_questions(folder / f"{split.value}.jsonl", _draw_questions(split, world))
    write_rows(folder / "corpus.jsonl", passages)


def _draw_questions(split: NameSplit, world: Encyclopedia) -> list[tuple[str, str, str]]:
    """Distinct questions in the ratio of their kinds."""
    rng = random.Random(f"questions:{split.value}:{_QUESTION_SEED}")
    question_by_text: dict[str, Question] = {}
    while len(question_by_text) < _PLANS[split].num_questions:
        question = sample_question(rng, world, sample_kind(rng))
        question_by_text.setdefault(question.text, question)
    return [(text, question.answer, question.kind.value) for text, question in question_by_text.items()]


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else builtin_path("encyclopedia/train").parent)
