"""The written form of trajectories and their parts, and that of older versions."""

import json

import pytest

from rlf.core.redact import Redactor
from rlf.engines.openrlhf.spool.pool import from_line
from rlf.lineage.rows import inner_names, read_inner
from rlf.types import Attempt, Image, InnerCall, InnerTurn, Outcome, Scored, ToolCall, ToolResult
from rlf.types.written import from_row, read, to_row, write
from tests.lineage.builders import scored
from tests.lineage.test_agents_inside import agents_call

FAILED, DONE = Attempt(Outcome.TIMEOUT, 0.1, "late", {"requests": 1}), Attempt(Outcome.OK, 0.2)
IMAGE = Image(b"\x89PNG", "image/png")
INNER = InnerTurn(
    "so", calls=(InnerCall("c1", ToolCall("look", {"at": "it"}), ToolResult(Outcome.OK, "seen", (DONE,))),)
)
RESULT = ToolResult(
    Outcome.OK, "found", (FAILED, DONE), images=(IMAGE,), inner=(INNER,), sha256="ab", original="found it"
)
VERSION_2 = {
    "outcome": "ok",
    "text": "found",
    "attempts": [["timeout", 0.1, "late", {"requests": 1}], ["ok", 0.2, None]],
    "images": [["image/png", "iVBORw=="]],
    "sha256": "ab",
    "original": "found it",
    "inner": [
        {
            "text": "so",
            "calls": [
                {
                    "id": "c1",
                    "name": "look",
                    "arguments": {"at": "it"},
                    "result": {"outcome": "ok", "text": "seen", "attempts": [["ok", 0.2, None]]},
                }
            ],
        }
    ],
}


def again(kind, noun):
    return read(kind, json.loads(Redactor({}).json(write(noun))))


def test_a_whole_trajectory_comes_back_from_json():
    assert again(Scored, scored(1)) == scored(1)


def test_what_is_inside_of_an_agents_call_comes_back_with_its_images():
    result = agents_call().result
    assert again(ToolResult, result) == result


def test_fields_that_have_their_defaults_are_left_out():
    assert write(ToolResult(Outcome.OK, "a")) == {"outcome": "ok", "text": "a"}


def test_a_result_of_an_older_recording_is_read():
    assert read(ToolResult, json.loads(json.dumps(VERSION_2))) == RESULT


def test_turns_of_agents_of_an_older_lineage_are_read():
    text = json.dumps(VERSION_2["inner"])
    assert read(ToolResult, {"outcome": "ok", "text": "", "inner": read_inner(text, {})}).inner == (INNER,)
    assert list(inner_names(text)) == ["look"]


def test_a_trajectory_of_an_older_spool_file_is_read():
    attempt = {"outcome": "ok", "run_s": 0.2, "error": None, "usage": {}}
    result = {"outcome": "ok", "text": "found", "attempts": [attempt], "queue_s": 0.0, "inner": []}
    turn = {"start": 1, "end": 2, "observation_end": 2, "text": "a", "failures": [], "repairs": []}
    turn["calls"] = [{"call": {"name": "look", "arguments": {}}, "result": result}]
    task = {"id": "q", "messages": [{"role": "user", "content": "?", "images": []}], "answer": None, "columns": {}}
    rest = {"stop": "answered", "answer": "a", "error": None, "duration_s": 0.5, "forks": []}
    trajectory = {"id": "t", "task": task, "sample_index": 0, "tokens": [1, 2], "action_mask": [False, True]}
    trajectory |= {"rollout_logprobs": [0.0, -0.5], "turns": [turn]} | rest
    written = {"trajectory": trajectory, "scores": [], "reward": 1.0, "success": None}
    for head in ([1, "train", 0, 0, 1, 2.0], [2, "train", 0, 0, 1, 2.0, True]):
        record = from_line(json.dumps({"head": head, "scored": written}))
        (call,) = record.scored.trajectory.calls
        assert call.result == ToolResult(Outcome.OK, "found", (DONE,)) and record.again is (head[0] == 2)


def test_a_row_of_an_export_holds_the_whole_trajectory():
    before = scored(1)
    row = json.loads(json.dumps(to_row(before)))
    assert from_row(row) == before and len(row["tokens"]) == len(row["action_mask"])
    with pytest.raises(ValueError, match="was thinned"):
        from_row(to_row(None))
