"""The written form of trajectories and their parts."""

import json

import pytest

from rlf.core.redact import Redactor
from rlf.types import Outcome, Scored, ToolResult
from rlf.types.written import from_row, read, to_row, write
from tests.lineage.builders import scored
from tests.lineage.test_agents_inside import agents_call


def again(kind, noun):
    return read(kind, json.loads(Redactor({}).json(write(noun))))


def test_a_whole_trajectory_comes_back_from_json():
    assert again(Scored, scored(1)) == scored(1)


def test_what_is_inside_of_an_agents_call_comes_back_with_its_images():
    result = agents_call().result
    assert again(ToolResult, result) == result


def test_fields_that_have_their_defaults_are_left_out():
    assert write(ToolResult(Outcome.OK, "a")) == {"outcome": "ok", "text": "a"}


def test_a_row_of_an_export_holds_the_whole_trajectory():
    before = scored(1)
    row = json.loads(json.dumps(to_row(before)))
    assert from_row(row) == before and len(row["tokens"]) == len(row["action_mask"])
    with pytest.raises(ValueError, match="was thinned"):
        from_row(to_row(None))
