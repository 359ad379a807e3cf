"""What a template looks up is told without filling it in."""

from __future__ import annotations

import pytest

from rlf.apps.judges.prompts import Path, paths_of, unknown_part


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ("{{ columns.topic }} {{ columns['a b'] }}", {("columns", "topic"), ("columns", "a b")}),
        ("{% for c in cs %}{{ loop.index }}{{ c.x }}{% endfor %}", {("cs",), ("cs", "*", "x")}),
        (
            "{% for c in cs %}{% for k in c.calls %}{{ k.name }}{% endfor %}{% endfor %}",
            {("cs",), ("cs", "*", "calls"), ("cs", "*", "calls", "*", "name")},
        ),
        ("{% for k, v in columns.items() %}{{ v.x }}{% endfor %}", {("columns",)}),
        ("{% set c = first %}{{ c.x | upper }}", {("first",), ("first", "x")}),
        ("{% macro m(first) %}{{ first.x }}{% endmacro %}", set()),
        ("{{ calls[0].result }}{{ (calls | first).name }}", {("calls", "*", "result"), ("calls",)}),
        ("{% if columns.x is defined %}{{ columns.x }}{% endif %}", set()),
        ("{{ columns.x | default(columns.y) }}{{ answer.upper() }}", {("columns", "y"), ("answer",)}),
    ],
)
def test_attributes_are_followed_through_loops_and_names(source: str, paths: set[Path]) -> None:
    assert paths_of(source) == paths


def test_the_first_part_that_a_shape_lacks_is_reported() -> None:
    shape = {"calls": [{"name": None}], "columns": None}
    assert unknown_part(("calls", "*", "nam", "x"), shape) == (("calls", "*", "nam"), ["name"])
    assert unknown_part(("calls", "name"), shape) == (("calls", "name"), [])
    assert unknown_part(("call",), shape) == (("call",), ["calls", "columns"])
    assert unknown_part(("columns", "any", "thing"), shape) is None
    assert unknown_part(("calls", "*", "name"), shape) is None
