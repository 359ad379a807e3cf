"""Functions get arguments of the types that they declare, wherever they run, and what they return becomes text."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict

from rlf.apps.imports.python import read_module
from rlf.apps.tools.examples import drill, run_samples
from rlf.chat.examples import read_value, readings_of, tools_of_template
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.kinds.python import PythonTool
from rlf.tools.outputs import json_text
from rlf.tools.python.functions import adapt
from rlf.tools.results import ToolFailure
from rlf.tools.samples import sample_arguments
from rlf.types import Outcome, ToolCall, ToolDescription, ToolResult

FOLDER = Path(__file__).parent
ARGUMENTS = {
    "take_model": ({"x": 1}, "Point Point(x=1, y=0.0)"),
    "take_dataclass": ({"low": {"x": 1}, "tags": ["a"]}, "Box Box(low=Point(x=1, y=0.0), tags={'a'})"),
    "take_named_tuple": ([1], "Pair Pair(left=1, right='b')"),
    "take_enum": ("blue", "Color <Color.BLUE: 'blue'>"),
    "take_int_enum": (1, "Level <Level.LOW: 1>"),
    "take_date": ("2024-02-03", "date datetime.date(2024, 2, 3)"),
    "take_datetime": ("2024-02-03T04:05:06", "datetime datetime.datetime(2024, 2, 3, 4, 5, 6)"),
    "take_time": ("04:05:06", "time datetime.time(4, 5, 6)"),
    "take_timedelta": ("PT90S", "timedelta datetime.timedelta(seconds=90)"),
    "take_uuid": (f"{1:032x}", "UUID UUID('00000000-0000-0000-0000-000000000001')"),
    "take_path": ("a/b", "PosixPath PosixPath('a/b')"),
    "take_decimal": ("1.10", "Decimal Decimal('1.10')"),
    "take_bytes": ("h\u00e9", "bytes b'h\\xc3\\xa9'"),
    "take_set": ([2, 1], "list [1, 2]"),
    "take_tuple": ([1, "2024-02-03"], "tuple (1, datetime.date(2024, 2, 3))"),
    "take_typed_dict": (
        {"deep": {"day": "2024-02-03"}},
        "dict {'deep': {'day': datetime.date(2024, 2, 3)}}",
    ),
    "take_models": ([{"x": 1}], "list [Point(x=1, y=0.0)]"),
    "take_optional_model": ({"x": 1}, "Point Point(x=1, y=0.0)"),
    "take_models_by_name": ({"a": {"x": 1}}, "dict {'a': Point(x=1, y=0.0)}"),
    "take_tree": ({"name": "a", "children": [{"name": "b"}]}, "Node Node(name='b', children=[])"),
    "take_literal": ("a", "str 'a'"),
    "take_plain": ([1, 2], "list [1, 2]"),
    "positional": (1, "tuple (1, datetime.date(2020, 1, 1), <Color.RED: 'red'>)"),
    "cached": ("2024-02-03", "date datetime.date(2024, 2, 3)"),
    "bound": ("red", "tuple ('sk-0', <Color.RED: 'red'>, None)"),
    "find": ("2024-02-03", "tuple ('other', datetime.date(2024, 2, 3))"),
    "take_later": ({"x": 1}, "Point Point(x=1, y=0.0)"),
    "engine": ({"x": 1}, "tuple ('other', Point(x=1, y=0.0))"),
    "engine.find": ("2024-02-03", "tuple ('other', datetime.date(2024, 2, 3))"),
}
REFUSED = {
    "take_date": ("2024-13-01", 'value: Input should be a valid date or datetime, .*; got "2024-13-01"'),
    "take_uuid": ("x", 'value: Input should be a valid UUID, .*; got "x"'),
    "take_decimal": ("many", 'value: Input should be a valid decimal; got "many"'),
    "take_tuple": ([1, "soon"], r'value\[1\]: Input should be a valid date .*; got "soon"'),
    "take_even": ({"number": 3}, "value.number: an even number is needed; got 3"),
    "take_tree": ({"name": "a", "children": [{}]}, "Expected: value"),
}


def declare(name: str, isolation: str = "auto", **keys: Any) -> ToolDeclaration:
    target = {"kind": "python", "callable": f"typed_tools.py:{name}", "isolation": isolation}
    mapping = {"name": name.replace(".", "_"), "description": "A tool.", "target": target, **keys}
    return ToolDeclaration.model_validate(mapping, context={"folder": FOLDER})


def schema_of(name: str) -> dict[str, Any]:
    return dict(PythonTool(callable=f"{FOLDER}/typed_tools.py:{name}").described().input_schema)


async def answer(tool: ToolDeclaration, *calls: dict[str, Any]) -> list[ToolResult]:
    async with Executor([tool]) as executor:
        return [await executor.invoke(ToolCall(tool.name, call), trajectory_id="t") for call in calls]


@pytest.mark.parametrize("isolation", ["inline", "auto"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_arrives_as_the_type_that_it_is_declared_as(name: str, isolation: str) -> None:
    given, shown = ARGUMENTS[name]
    (result,) = asyncio.run(answer(declare(name, isolation), {"value": given}))
    assert (result.outcome, result.text) == (Outcome.OK, shown)


@pytest.mark.parametrize("name", ["take_dataclass", "take_later", "positional", "bound", "engine.find"])
def test_arguments_arrive_as_their_types_in_a_process_of_their_own(name: str) -> None:
    given, shown = ARGUMENTS[name]
    (result,) = asyncio.run(answer(declare(name, "process"), {"value": given}))
    assert (result.outcome, result.text) == (Outcome.OK, shown)


def test_a_class_gets_typed_arguments_too() -> None:
    (result,) = asyncio.run(answer(declare("Engine"), {"value": {"x": 2}}))
    assert result.text == "tuple ('main', Point(x=2, y=0.0))"


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_its_type_refuses_is_an_invalid_argument_and_the_message_says_why(name: str) -> None:
    given, words = REFUSED[name]
    (result,) = asyncio.run(answer(declare(name), {"value": given}))
    assert result.outcome is Outcome.INVALID_ARGUMENTS
    assert re.search(words, result.text), result.text


def test_a_refusal_is_the_same_in_a_process() -> None:
    given = {"value": REFUSED["take_even"][0]}
    here, there = (asyncio.run(answer(declare("take_even", place), given))[0] for place in ("thread", "process"))
    assert (there.outcome, there.text) == (here.outcome, here.text)


@pytest.mark.parametrize(
    ("name", "schema", "shown"),
    [
        ("default_date", {"type": "string", "format": "date", "default": "2020-01-01"}, "datetime.date(2020, 1, 1)"),
        ("default_field", {"type": "integer", "minimum": 1, "description": "how many", "default": 3}, "int 3"),
        ("default_within", {"type": "string", "format": "date", "default": "2020-01-01"}, "datetime.date(2020, 1, 1)"),
    ],
)
def test_a_default_of_any_type_is_shown_and_used(name: str, schema: dict[str, Any], shown: str) -> None:
    found = schema_of(name)
    assert (found["properties"]["value"], "required" in found) == (schema, False)
    (result,) = asyncio.run(answer(declare(name), {}))
    assert shown in result.text


def test_what_a_partial_binds_is_not_shown_to_the_model() -> None:
    assert list(schema_of("bound")["properties"]) == ["value"]


def test_definitions_are_kept_and_one_that_is_used_once_stands_in_its_place() -> None:
    point = {"properties": {"x": {"type": "integer"}, "y": {"default": 0.0, "type": "number"}}, "required": ["x"]}
    point |= {"type": "object"}
    assert schema_of("take_model")["properties"]["value"] == point
    models = schema_of("take_models")
    assert models["properties"]["value"] == {"items": {"$ref": "#/$defs/Point"}, "type": "array"}
    assert models["$defs"] == {"Point": point}
    tree = schema_of("take_tree")
    assert tree["properties"]["value"] == {"$ref": "#/$defs/Node"}
    assert tree["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_a_template_that_shows_no_definitions_gets_them_in_place() -> None:
    tool = {"type": "function", "function": {"name": "t", "parameters": schema_of("take_models")}}
    (kept,) = tools_of_template([tool], json.dumps)
    assert kept == tool
    (shown,) = tools_of_template([tool], lambda tools: json.dumps(tools[0]["function"]["parameters"]["properties"]))
    assert shown["function"]["parameters"]["properties"]["value"]["items"]["required"] == ["x"]
    assert "$defs" not in shown["function"]["parameters"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("model", '{"x": 1, "y": 0.0}'),
        ("dataclass", '{"low": {"x": 1, "y": 0.0}, "tags": ["a", "b"]}'),
        ("named tuple", '[1, "b"]'),
        ("enum", "red"),
        ("date", "2020-01-02"),
        ("datetime", "2020-01-02T03:00:00"),
        ("duration", "PT1M30S"),
        ("decimal", "1.10"),
        ("uuid", "00000000-0000-0000-0000-000000000001"),
        ("path", "a/b"),
        ("bytes", "h\u00e9"),
        ("binary", None),
        ("set", "[10, 8, 9]"),
        ("deque", "[1]"),
        ("keys", '{"2020-01-01": {"red": ["1"]}}'),
        ("nested", '[{"of": ["blue", {"name": "a", "children": [{"name": "b", "children": []}]}]}]'),
        ("tuple keys", None),
        ("unknown", None),
    ],
)
def test_a_result_of_any_of_these_types_becomes_text(kind: str, text: str | None) -> None:
    (result,) = asyncio.run(answer(declare("give", "inline"), {"kind": kind}))
    assert (result.outcome, result.text) == (Outcome.OK, text) if text else result.outcome is Outcome.OUTPUT_REJECTED


def test_a_function_of_plain_types_is_called_as_it_is() -> None:
    def plain(a: str, b: list[int] | None = None, c: dict[str, Any] | None = None, *, d: float = 1, **rest: int) -> str:
        return a

    assert adapt(plain) is plain


def test_a_tool_without_examples_is_called_with_made_up_arguments_after_they_are_announced() -> None:
    tool, announced = declare("positional"), list[Any]()

    async def main() -> list[Any]:
        async with Executor([tool]) as executor:
            return await run_samples(executor, tool, announced.append)

    runs = asyncio.run(main())
    assert announced == [{"value": 1}, {"value": 1, "other": "2020-01-01", "color": "red"}]
    assert [(run.arguments, run.result.outcome, run.shortfall, run.note) for run in runs] == [
        (arguments, Outcome.OK, None, None) for arguments in announced
    ]


def test_the_drill_of_a_tool_without_examples_starts_from_made_up_arguments() -> None:
    tool = declare("take_much")

    async def main() -> list[Any]:
        async with Executor([tool]) as executor:
            return await drill(executor, tool)

    runs = asyncio.run(main())
    assert [(run.fault, run.shortfall) for run in runs] == [
        ("missing 'a'", None),
        ("'a' of another type", None),
        ("an unknown argument", None),
    ]


@pytest.mark.parametrize(
    ("name", "is_shortfall", "words"),
    [
        ("take_even", False, "an even number is needed"),
        ("give", False, "KeyError: 'example'"),
        ("misspelt", True, "AttributeError: "),
        ("untold", True, "output_rejected"),
    ],
)
def test_a_made_up_call_fails_a_tool_only_where_no_arguments_would_do(
    name: str, is_shortfall: bool, words: str
) -> None:
    tool = declare(name)

    async def main() -> list[Any]:
        async with Executor([tool]) as executor:
            return await run_samples(executor, tool, lambda arguments: None)

    (run,) = asyncio.run(main())
    assert words in (run.shortfall if is_shortfall else run.note)
    assert (run.note if is_shortfall else run.shortfall) is None


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name not in ("take_even", "take_literal")])
def test_made_up_arguments_suit_every_type(name: str) -> None:
    made = sample_arguments(schema_of(name))
    assert made and made == sample_arguments(schema_of(name))
    results = asyncio.run(answer(declare(name, "inline"), *made))
    assert {result.outcome for result in results} == {Outcome.OK}, [result.text for result in results]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 5, "multipleOf": 4},
        {"type": "integer", "exclusiveMaximum": 0},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 0.75},
        {"type": "string", "minLength": 12},
        {"type": "string", "maxLength": 2},
        {"type": "string", "pattern": "^[A-Z]\\d$"},
        {"enum": [7, 8]},
        {"const": None},
        {"type": ["null", "boolean"]},
        {"type": "array", "items": {"type": "string"}, "minItems": 3},
        {"oneOf": [{"type": "null"}, {"allOf": [{"type": "object"}, {"required": ["a"], "properties": {"a": {}}}]}]},
    ],
    ids=json.dumps,
)
def test_made_up_arguments_keep_bounds(schema: dict[str, Any]) -> None:
    whole = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    assert len(sample_arguments(whole)) == 1


@pytest.mark.parametrize(
    ("name", "schema", "words"),
    [
        ("take_date", {"type": "string"}, None),
        ("take_date", {"type": "integer"}, "be integer, but the function's annotation says string"),
        ("take_models", {"type": "array"}, None),
        ("take_optional_model", {"$ref": "#/$defs/Point"}, None),
        (
            "take_optional_model",
            {"$ref": "#/$defs/Word"},
            "be string, but the function's annotation says null or object",
        ),
        ("take_named_tuple", {"type": "object"}, None),
        ("default_date", {"type": "string", "default": "2020-01-01"}, None),
        ("default_date", {"type": "string", "default": "2020-01-02"}, "the function has '2020-01-01'"),
        ("default_field", {"type": "integer"}, None),
        ("default_within", {"type": "string"}, None),
        ("positional", {"type": "integer"}, None),
    ],
)
def test_an_inputschema_is_compared_with_these_types(name: str, schema: dict[str, Any], words: str | None) -> None:
    definitions = {"Point": {"type": "object"}, "Word": {"type": "string"}}
    required = [] if name.startswith("default") else ["value"]
    whole = {"type": "object", "properties": {"value": schema}, "required": required, "$defs": definitions}
    target = PythonTool(callable=f"{FOLDER}/typed_tools.py:{name}")
    complaints = target.complaints(whole)
    assert len(complaints) == (words is not None), complaints
    assert words is None or words in complaints[0]
    if "default" not in schema:
        assert target.static_complaints(whole) == [], "the source alone does not settle these types"


def test_a_module_is_imported_name_by_name() -> None:
    found = read_module(str(FOLDER / "importable.py"), FOLDER)
    names = [tool["name"] for tool in found.tools]
    assert names == ["typed", "cached", "wrapped", "bound", "find", "keeper"]
    assert found.tools[0]["target"] == {"kind": "python", "callable": "importable.py:typed"}
    reasons = [
        "odd: parameter 'thing': no JSON Schema for its type",
        "silent: has no docstring",
        "hidden: its signature names no argument",
        "Keeper: is a class; write a tool file",
        "Plain: is a class whose instances cannot be called",
        "counted: is an int, which cannot be called",
    ]
    for reason, said in zip(reasons, found.left_out, strict=True):
        assert said.startswith(reason)


def test_values_of_a_referenced_type_are_read_as_that_type() -> None:
    color = {"type": "string", "enum": ["1", "2"]}
    properties = {"a": {"$ref": "#/$defs/Color"}, "b": {"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "null"}]}}
    schema = {"type": "object", "properties": properties, "$defs": {"Color": color}}
    readings = readings_of(ToolDescription("paint", "", schema))
    assert [read_value("1", readings, name) for name in "ab"] == ["1", "1"]


class Strict(BaseModel):
    """A model that takes no value of another type."""

    model_config = ConfigDict(strict=True)

    day: date
    size: tuple[int, str]
    tags: set[int]


def take_strict(value: Strict) -> str:
    return repr(value.day)


def take_text(value: tuple[str, date]) -> str:
    return repr(value[0])


def test_a_strict_model_takes_what_json_has_for_its_fields() -> None:
    value = {"day": "2024-02-03", "size": [1, "a"], "tags": [2]}
    assert adapt(take_strict)(value=value) == "datetime.date(2024, 2, 3)"
    with pytest.raises(ToolFailure, match=r"value\.size"):
        adapt(take_strict)(value={**value, "size": ["1", "a"]})


def test_half_of_a_surrogate_pair_reaches_a_typed_function_as_it_is() -> None:
    assert adapt(take_text)(value=["\ud800", "2024-02-03"]) == repr("\ud800")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int64(2), "2"),
        (np.arange(2), "[0, 1]"),
        ({"a": [np.ones((1, 2)), np.bool_(True)]}, '{"a": [[[1.0, 1.0]], true]}'),
    ],
)
def test_results_of_numpy_are_json(value: Any, text: str) -> None:
    assert json_text(value) == text
