"""What a declaration leaves out and a function says of itself; and what both say and must agree on."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field, ValidationError
from typing_extensions import Unpack

from rlf.core import RlfError
from rlf.tools import ToolDeclaration
from rlf.tools.python.description import describe_function, docstring_summary, parameter_words
from rlf.tools.python.functions import adapt
from rlf.tools.python.inference import signature_complaints
from rlf.tools.results import ToolFailure

GOOGLE = """Finds things.

    Quickly.

    Args:
        query: what to look for
        limit (int): most results
    Returns:
        text
    """
NUMPY = """Finds things.

Quickly.

Parameters
----------
query : str
    what to look for
limit : int, optional
    most results

Returns
-------
str
"""
SPHINX = """Finds things.

Quickly.

:param query: what to look for
:param int limit: most results
:returns: text
"""


EPYTEXT = """Finds things.

Quickly.

@param query: what to look for
@param limit: most results
@type limit: int
@return: text
"""
_LINES = "what to find,\n{0}in two lines\n\n{0}and a third\n"
ON_TWO_LINES = {
    "google": f"Finds.\n\nArgs:\n    query (str): {_LINES.format(' ' * 8)}    other: x\n",
    "numpy": f"Finds.\n\nParameters\n----------\nquery : str\n    {_LINES.format(' ' * 4)}other\n    x\n",
    "sphinx": f"Finds.\n\n:param query: {_LINES.format(' ' * 4)}:param other: x\n",
    "epytext": f"Finds.\n\n@param query: {_LINES.format(' ' * 4)}@param other: x\n",
}


class Place(BaseModel):
    town: str


def find(query: str, limit: int = 3, order: Literal["up", "down"] = "up", at: Place | None = None) -> str:
    """Finds things.

    Args:
        query: what to look for
    """
    return query


@pytest.mark.parametrize("document", [GOOGLE, NUMPY, SPHINX, EPYTEXT], ids=list(ON_TWO_LINES))
def test_docstrings_of_four_styles_say_the_same(document: str) -> None:
    import inspect

    cleaned = inspect.cleandoc(document)
    assert docstring_summary(cleaned) == "Finds things.\n\nQuickly."
    assert parameter_words(cleaned) == {"query": "what to look for", "limit": "most results"}


@pytest.mark.parametrize("style", ON_TWO_LINES)
def test_the_words_on_an_argument_keep_all_their_lines(style: str) -> None:
    def find(query: str, other: str) -> None: ...

    find.__doc__ = ON_TWO_LINES[style]
    said = describe_function(find, "find")
    shown = {name: schema["description"] for name, schema in said.input_schema["properties"].items()}
    assert (said.description, shown) == (
        "Finds.",
        {"query": "what to find,\nin two lines\n\nand a third", "other": "x"},
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "Arguments:\n- query: what to look for\n- limit: most results\n",
        "Args:\n    `query`: what to look for\n    limit (int) - most results\n\nReturns:\n    text\n",
        "**Parameters**\n\n* `query` – what to look for\n* **limit** – most results\n",
        "Keyword Args:\n    query: what to look for\n    limit: most results\n",
        "Params:\n    query: what to look for\n    limit: most results\n",
        "Args:\n    query: what to look for\n\n:param limit: most results\n",
    ],
)
def test_lists_of_arguments_beside_the_four_styles_are_read(arguments: str) -> None:
    document = f"Searches.\n\n{arguments}"
    words = parameter_words(document)
    assert (words["query"], words["limit"]) == ("what to look for", "most results")
    assert docstring_summary(document) == "Searches."


def test_a_list_of_arguments_that_nobody_reads_stays_in_the_description() -> None:
    document = "Searches.\n\nParameters:\n| query | what to look for |"
    assert (docstring_summary(document), parameter_words(document)) == (document, {})


def test_parameters_that_share_their_words_have_them_each() -> None:
    assert parameter_words("Adds.\n\nParameters\n----------\na, b : int\n    a number\n") == {
        "a": "a number",
        "b": "a number",
    }


def test_words_beside_the_type_go_before_the_docstring() -> None:
    def find(
        a: Annotated[str, Field(description="of the field"), "of the annotation"],
        b: Annotated[str, "of the annotation\non two lines"],
        c: str = Field("x", description="of the default"),
        d: str = "",
    ) -> None:
        """Finds.

        Args:
            a: of the docstring
            b: of the docstring
            c: of the docstring
            d: of the docstring
        """

    properties = describe_function(find, "find").input_schema["properties"]
    assert {name: schema["description"] for name, schema in properties.items()} == {
        "a": "of the field",
        "b": "of the annotation\non two lines",
        "c": "of the default",
        "d": "of the docstring",
    }


def test_a_schema_is_read_from_types_defaults_and_words() -> None:
    said = describe_function(find, "find")
    assert said.description == "Finds things."
    assert said.input_schema["required"] == ["query"]
    properties = said.input_schema["properties"]
    assert properties["query"] == {"type": "string", "description": "what to look for"}
    assert properties["limit"] == {"type": "integer", "default": 3}
    assert properties["order"] == {"type": "string", "enum": ["up", "down"], "default": "up"}


def test_a_declaration_takes_from_the_function_what_it_leaves_out(toolbox: Any) -> None:
    mapping = {"name": "take", "target": {"kind": "python", "callable": "toolbox.py:take"}}
    declaration = ToolDeclaration.model_validate(mapping, context={"folder": Path(__file__).parent})
    assert declaration.description == "Takes so many seconds; below 0 it hangs, above 100 it fails."
    assert declaration.input_schema["properties"] == {"seconds": {"type": "number", "description": "how long."}}
    own = ToolDeclaration.model_validate(mapping | {"description": "Mine."}, context={"folder": Path(__file__).parent})
    assert (own.description, own.input_schema) == ("Mine.", declaration.input_schema)


def test_a_class_is_described_by_its_call_and_its_own_words(toolbox: Any) -> None:
    mapping = {"name": "notes", "target": {"kind": "python", "callable": "toolbox.py:Notes"}}
    declaration = ToolDeclaration.model_validate(mapping, context={"folder": Path(__file__).parent})
    assert declaration.description == "Keeps notes.\n\nWhat is kept stays from call to call."
    assert declaration.input_schema["properties"] == {"note": {"type": "string"}}


def test_a_type_without_json_is_the_users_to_fix() -> None:
    def bad(thing: type("Odd", (), {})) -> str:  # type: ignore[valid-type]
        return "never"

    with pytest.raises(RlfError, match=r"bad: parameter 'thing': no JSON Schema for its type.*by hand"):
        describe_function(bad, "bad")


def test_a_target_that_cannot_be_imported_is_a_fault_of_the_target() -> None:
    with pytest.raises(ValidationError) as caught:
        ToolDeclaration.model_validate({"name": "x", "target": {"kind": "python", "callable": "no_such_module:f"}})
    assert [error["loc"][:1] for error in caught.value.errors()] == [("target",)]


def typed(query: str, limit: int = 3, ratio: float = 0.5, anything=None) -> str:  # type: ignore[no-untyped-def]
    return query


@pytest.mark.parametrize(
    ("name", "said", "words"),
    [
        ("limit", {"type": "integer", "default": 3}, None),
        ("limit", {"type": "integer", "default": 5}, "has 5 as the default of 'limit', but the function has 3"),
        ("limit", {"type": "number"}, "lets 'limit' be number, but the function's annotation says integer"),
        ("limit", {"type": ["integer", "null"]}, "be integer or null"),
        ("ratio", {"type": "integer"}, None),
        ("ratio", {"type": "string"}, "be string"),
        ("anything", {"type": "string"}, None),
        ("query", {}, None),
        ("query", {"enum": ["a"]}, None),
    ],
)
def test_defaults_and_types_are_compared(name: str, said: dict[str, Any], words: str | None) -> None:
    properties = {"query": {"type": "string"}, name: said}
    complaints = signature_complaints(typed, {"type": "object", "properties": properties, "required": ["query"]})
    assert len(complaints) == (words is not None), complaints
    assert words is None or words in complaints[0]


def test_other_arguments_of_a_function_are_a_schema_of_their_type() -> None:
    def find(query: str, **days: date) -> str:
        """Find.

        Args:
            **days: Days by name.
        """
        return f"{query} {days}"

    said = describe_function(find, "find").input_schema
    others = {"type": "string", "format": "date", "description": "Days by name."}
    assert (said["required"], said["additionalProperties"]) == (["query"], others)
    assert adapt(find)(query="x", Monday="2024-01-01") == "x {'Monday': datetime.date(2024, 1, 1)}"
    with pytest.raises(ToolFailure, match="Monday"):
        adapt(find)(query="x", Monday="soon")


def test_untyped_other_arguments_are_let_through_beside_named_ones() -> None:
    def find(query: str, **others: Any) -> None: ...

    def find_untyped(query, **others) -> None: ...  # type: ignore[no-untyped-def]  # what is tried

    for function in (find, find_untyped):
        assert describe_function(function, "find").input_schema["additionalProperties"] is True


@pytest.mark.parametrize("what", ["list", "wrapper", "keys"])
def test_a_function_that_no_call_by_name_can_fill_in_has_no_schema(what: str) -> None:
    class Keys(TypedDict):
        a: int

    def names(*names: str) -> None: ...

    def wrapper(*args, **others) -> None: ...  # type: ignore[no-untyped-def]  # what is tried

    def others(**others) -> None: ...  # type: ignore[no-untyped-def]  # what is tried

    def keys(**others: Unpack[Keys]) -> None: ...

    functions = {"list": (names, wrapper), "wrapper": (wrapper, others), "keys": (keys,)}[what]
    for function in functions:
        with pytest.raises(RlfError, match="by hand"):
            describe_function(function, "find")
