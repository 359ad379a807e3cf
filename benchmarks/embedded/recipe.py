"""What makes a built-in model, apart from the arithmetic: seed, shape and starting weights, plans, and rows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.small.weights import start_copying
from benchmarks.embedded.tiny.model import TINY, Shape, create_model
from benchmarks.embedded.tiny.pretrain import Stage


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model before its training, and the two stages of that."""

    tokenizer: PreTrainedTokenizerFast
    seed: int
    skills: Stage
    habits: Stage
    shape: Shape = TINY
    copies: bool = True
    """Whether it starts with heads that copy, set by hand."""

    def create_model(self) -> Qwen3ForCausalLM:
        """The weights before the first step."""
        model = create_model(self.tokenizer, self.seed, self.shape)
        if self.copies:
            start_copying(model, self.seed)
        return model

    def digest(self) -> str:
        """A hash that another seed, shape or plan changes, or other rows in a stage's first two steps or its last.

        Two, since some recipes have two kinds of steps by turns.
        """
        given = (
            self.seed,
            self.shape,
            self.copies,
            len(self.tokenizer),
            [_describe(s) for s in (self.skills, self.habits)],
        )
        return hashlib.sha256(json.dumps(given).encode()).hexdigest()


def _describe(stage: Stage) -> dict[str, object]:
    rows = [row for step in (0, 1, stage.num_steps - 1) for row in stage.batch_of_step(step)]
    return {
        "plan": dataclasses.asdict(stage.plan),
        "weights": (stage.scale, stage.num_chunks, stage.context_weight),
        "rows": [(row.token_ids, row.is_action) for row in rows],
    }
