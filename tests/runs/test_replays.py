"""Where played-back results come from: a run's lineage, or the file that `--record` wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlf.core import RlfError
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.runs.restore import find_replay
from rlf.tools.execution.tape import AnsweredCall, ReplayMiss, TapeWriter, arguments_text
from rlf.types import Image, Outcome, StepFinished, ToolCall, ToolResult
from rlf.types.trajectory import CallRecord
from tests.lineage.builders import run_record, scored


def step_with(calls: list[CallRecord]) -> StepFinished:
    made = scored(1, num_calls=1)
    turns = (replace(made.trajectory.turns[0], calls=tuple(calls)), *made.trajectory.turns[1:])
    trajectory = replace(made.trajectory, id="train/0/0", turns=turns)
    return StepFinished(1, {}, [replace(made, trajectory=trajectory)], [0.5])


def record(runs_folder: Path, calls: list[CallRecord]) -> str:
    run_id = "20260101-000000-aaaa"
    with open_store(runs_folder / "rlf.db") as store:
        start_run(store, run_record(run_id))
        with Recorder(store, run_id) as recorder:
            recorder(step_with(calls))
    return run_id


ASKED = ToolCall("search", {"query": "é", "k": 3})
IDENTITY = AnsweredCall("train/0/0", "search", arguments_text(ASKED.arguments))


def test_a_runs_lineage_gives_back_the_very_results_in_their_order(tmp_path: Path) -> None:
    first = ToolResult(
        Outcome.OK,
        "cut",
        truncated=True,
        size_bytes=12,
        sha256="f" * 64,
        images=(Image(b"\x89PNG", "image/png"),),
        structured={"a": [1, None]},
        usage={"prompt_tokens": 3},
        isolation="inline",
        coerced=True,
    )
    second = ToolResult(Outcome.TOOL_ERROR, "error: no")
    over = ToolResult(Outcome.LIMIT_REACHED, "No tool calls are left.")
    run_id = record(tmp_path, [CallRecord(ASKED, result) for result in (first, second, over)])
    tape = find_replay(run_id, tmp_path)
    assert tape.answer(IDENTITY) == first
    assert tape.answer(IDENTITY) == second
    with pytest.raises(ReplayMiss, match="more often than the recording"):  # what was over the limit was no call
        tape.answer(IDENTITY)


def test_a_file_is_taken_for_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    writer = TapeWriter(file)
    writer.add(IDENTITY, ToolResult(Outcome.OK, "from the file"))
    writer.close()
    assert find_replay(str(file), tmp_path).answer(IDENTITY).text == "from the file"


def test_what_is_neither_run_nor_file_is_reported(tmp_path: Path) -> None:
    record(tmp_path, [])
    with pytest.raises(RlfError, match="nothing-like-it"):
        find_replay("nothing-like-it", tmp_path)
