"""What commands print with `--json` has a schema: one for each command, and each is held against real output."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import Result

import rlf
from rlf.apps.schema.outputs import EVENTS, OUTPUTS, any_schema_text, output_schema
from rlf.types import Outcome

from .conftest import RUN

Rlf = Callable[..., Result]
ROOT = Path(__file__).parents[2]
SHOP = ROOT / "specs" / "search.yaml"


def printed_names() -> Iterator[str]:
    """The names that the command line's code prints results under."""
    package = Path(rlf.__file__).parent
    for path in (*package.glob("cli/*.py"), *package.glob("apps/*/command.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("print_envelope", "print_result")):
                continue
            if isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)


def test_every_command_that_prints_json_has_a_schema() -> None:
    # `watch`, `watch_sweep` and `_print` of explanations print under the name that they are given
    by_parameter = {"run", "resume", "runs fork", "why", "forecast"}
    assert set(printed_names()) | by_parameter == set(OUTPUTS)
    assert set(EVENTS) <= set(OUTPUTS)


def test_the_schema_is_one_and_the_stored_file_is_it() -> None:
    Draft202012Validator.check_schema(output_schema())
    assert (ROOT / "docs" / "schema" / "output.json").read_text() == any_schema_text("output")


def test_a_schema_refuses_what_a_command_does_not_print() -> None:
    schema = output_schema() | {"anyOf": [{"$ref": "#/$defs/runs tag"}]}
    validator = Draft202012Validator(schema)
    line = {"rlf": "1", "command": "runs tag", "data": {"run_id": "a", "tags": ["b"]}}
    assert validator.is_valid(line)
    for wrong in ({"run_id": "a"}, {"id": "a", "tags": []}, {"run_id": 1, "tags": []}, {"run_id": "a", "tags": "b"}):
        assert not validator.is_valid(line | {"data": wrong})
    assert not validator.is_valid(line | {"command": "runs rm"})


def test_no_output_calls_a_run_by_id() -> None:
    record = output_schema()["$defs"]["RunRecord"]["properties"]
    assert "run_id" in record and "id" not in record


READ = [
    ("runs list", ["runs", "list"]),
    ("runs show", ["runs", "show", RUN]),
    ("runs show", ["runs", "show", RUN, "--lineage"]),
    ("runs show", ["runs", "show", RUN, "--trajectory", "0"]),
    ("runs tail", ["runs", "tail", RUN]),
    ("runs diff", ["runs", "diff", RUN, RUN]),
    ("runs whence", ["runs", "whence", RUN]),
    ("runs tag", ["runs", "tag", RUN, "best"]),
    ("runs note", ["runs", "note", RUN, "a note"]),
    ("runs export", ["runs", "export", RUN, "-o", "one.db"]),
    ("runs gc", ["runs", "gc"]),
    ("runs rm", ["runs", "rm", RUN, "--yes"]),
    ("trace", ["trace", RUN]),
    ("trace", ["trace", RUN, "0"]),
    ("trace", ["trace", RUN, "--outcome", "ok"]),
    ("doctor", ["doctor"]),
    ("init", ["init", "mine"]),
    ("schema", ["schema", "--write", "schemas"]),
    ("rewards show", ["rewards", "show", "exact_match"]),
    ("rewards show", ["rewards", "show", str(SHOP)]),
    ("rewards list", ["rewards", "list", "--kinds"]),
]


@pytest.mark.parametrize(
    ("command", "arguments"), READ, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_what_a_command_prints_has_its_schema(recorded: Rlf, command: str, arguments: list[str]) -> None:
    result = recorded(*arguments, "--json")
    assert result.exit_code in (0, 1) if command == "doctor" else result.exit_code == 0, (
        result.output,
        result.exception,
    )
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["command"] for line in lines] == [command] * len(lines)
    assert "data" in lines[-1] and all("event" in line for line in lines[:-1])


def test_verify_and_import_print_what_they_found(recorded: Rlf) -> None:
    verified = recorded("runs", "verify", "--json")
    assert verified.exit_code == 3 and json.loads(verified.stdout)["data"]["num_runs"] == 1
    assert recorded("runs", "export", RUN, "-o", "one.db").exit_code == 0
    for imported, present in (([RUN], []), ([], [RUN])):
        taken = recorded("runs", "import", "one.db", "--runs", "elsewhere", "--json")
        assert json.loads(taken.stdout)["data"] == {"imported": imported, "present": present}


def test_the_list_of_runs_is_cut_to_a_limit(recorded: Rlf) -> None:
    assert recorded("runs", "list", "--limit", "0").exit_code == 2
    assert len(json.loads(recorded("runs", "list", "--limit", "1", "--json").stdout)["data"]) == 1
    assert RUN in recorded("runs", "list", "--columns", "run_id,status").stdout


def test_calls_are_found_by_tool_and_outcome(recorded: Rlf) -> None:
    def calls(*options: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(recorded("trace", RUN, *options, "--json").stdout)["data"]
        return found

    every = calls("--tool", "search", "--limit", "10000")
    assert every and {call["name"] for call in every} == {"search"}
    counts = {outcome: sum(call["outcome"] == outcome for call in every) for outcome in Outcome}
    failed = calls("--tool", "search", "--outcome", "failed", "--limit", "10000")
    assert len(failed) == len(every) - counts[Outcome.OK]
    assert len(calls("--outcome", "ok", "--limit", "3")) == min(3, counts[Outcome.OK])
    assert {call["step"] for call in calls("--outcome", "ok", "--phase", "train", "--step", "2")} == {2}
    assert recorded("trace", RUN, "--outcome", "ok").stdout.count("search") > 0
    for wrong in (["--outcome", "timeuot"], ["--tool", "serach"], ["--tool", "search", "--flipped"]):
        assert recorded("trace", RUN, *wrong).exit_code == 2
