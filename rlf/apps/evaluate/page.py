"""What the page shows of explanations, in a fork: plain values in, the JSON of commands out."""

from __future__ import annotations

from pathlib import Path

from rlf.apps.evaluate import advantage
from rlf.apps.evaluate.advantage import AdvantageReason


def explain_advantage(run: str, runs: str, step: int, k: int) -> AdvantageReason:
    """Why a trajectory was trained with its advantage."""
    return advantage.explain_advantage(run, Path(runs), step, k)


TASKS = (explain_advantage,)
