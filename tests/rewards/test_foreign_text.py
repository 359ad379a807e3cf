"""Errors of reward functions that are not valid Unicode, or have no bounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlf.core.text import MAX_FAULT_CHARS
from rlf.rewards import Term
from rlf.types import Trajectory
from rlf.types.written import write

from ..hostile import FAULTS
from .scoring import score

CODE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.hostile import FAULTS

def fails(trajectory, fault):
    raise FAULTS[fault]()

async def fails_async(trajectory, fault):
    raise FAULTS[fault]()
"""


def test_whatever_a_reward_function_raises_is_a_reason_that_can_be_stored(
    tmp_path: Path, trajectory: Callable[..., Trajectory]
) -> None:
    (tmp_path / "own.py").write_text(CODE)
    for function in ("fails", "fails_async"):
        named = {"kind": "python", "name": "own", "callable": f"own.py:{function}"}
        term = Term.model_validate(named, context={"folder": tmp_path})
        for name in FAULTS:
            scored = score(trajectory("x", fault=name), term)
            (found,) = scored.scores
            assert found.value is None, name
            found.reason.encode()
            assert 0 < len(found.reason) < MAX_FAULT_CHARS
            str(write(scored)).encode()
