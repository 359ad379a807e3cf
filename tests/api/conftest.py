from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = [
    "train.prompts_per_step=2",
    "rollout.num_generations=4",
    "train.steps=6",
    "eval.every=3",
    "eval.limit=8",
    "checkpoint.every=2",
]


@pytest.fixture
def small():
    """The search spec, cut to a few seconds."""
    return [ROOT / "specs" / "search.yaml"], SMALL
