"""MiniCPM5: calls in `<function name="f">`, texts in CDATA, values as Python prints them."""

import pytest

from rlf.chat.repair import stand_in
from rlf.types import ToolCall, ToolDescription

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": ["integer", "null"]},
        "exact": {"type": "boolean"},
        "fields": {"type": "array"},
    },
}
TOOLS = (ToolDescription("search", "Finds.", SCHEMA), ToolDescription("now", "The time.", {"type": "object"}))
NOW = '<function name="now"></function>'


def call(name="search", **arguments):
    values = "".join(f'<param name="{key}">{value}</param>' for key, value in arguments.items())
    return f'<function name="{name}">{values}</function>'


@pytest.fixture(scope="module")
def minicpm():
    return stand_in("minicpm5", TOOLS)


def arguments_of(chat, text):
    (found,) = chat.parse(text, truncated=False).items
    return found.arguments


def test_the_calls_of_a_turn_are_read(minicpm, kinds):
    text = f'I look.\n{call(query="a")}\n{NOW}\n<function name="search">\n  <param name="query">b</param>\n</function>'
    assert kinds(minicpm.parse(text, truncated=False)) == ["search", "now", "search"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("<![CDATA[a < b\n&amp; </param> <c>]]>", "a < b\n&amp; </param> <c>"),
        (f"<![CDATA[{NOW}]]>", NOW),
        ("<![CDATA[x]]>]]>", "x]]>"),
        ("a &lt; b &amp;&amp; c", "a < b && c"),
        ("a & b", "a & b"),
        (" 42 ", " 42 "),
    ],
)
def test_a_text_is_what_stands_in_cdata_or_what_its_entities_stand_for(minicpm, written, value):
    assert arguments_of(minicpm, call(query=written)) == {"query": value}


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("limit", "None", None),
        ("limit", "null", None),
        ("exact", "True", True),
        ("fields", "['a', None, {'b': 1}]", ["a", None, {"b": 1}]),
        ("fields", '["a"]', ["a"]),
    ],
)
def test_values_are_read_as_json_or_as_python_prints_them(minicpm, key, written, value):
    assert arguments_of(minicpm, call(**{key: written})) == {key: value}


MALFORMED = {
    "no end of a value": ('<function name="search"><param name="query">a</function>', ["unterminated"]),
    "no end of a call": ('<function name="search"><param name="query">a</param>', ["unterminated"]),
    "calls inside a value": (
        f'<function name="search"><param name="query">{NOW} and {NOW}</param></function>',
        ["unterminated"],
    ),
    "no end of the data": (
        f'<function name="search"><param name="query"><![CDATA[{NOW}</param></function>',
        ["unterminated"],
    ),
    "words": ('<function name="search">for Vell</function>', ["unterminated"]),
    "no quotes": ("<function name=search></function>", ["unterminated"]),
    "no name": (call("", query="a"), ["missing_name"]),
    "a call, then no JSON": (f"{NOW}{call(limit='three')}", ["now", "bad_arguments"]),
    "several values": (call(fields="[1], other=[2]"), ["bad_arguments"]),
    "code": (call(fields="open('a')"), ["bad_arguments"]),
    "twice": (call(query="a").replace("</function>", '<param name="query">b</param></function>'), ["bad_arguments"]),
    "a closing tag alone": ("</function>", ["stray_tag"]),
    "no tag of the function": ('<param name="query">a</param>', ["wrong_tag"]),
    "thought": (f"<think>{NOW}</think>{call(query='a')}", ["in_thinking", "search"]),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_call_is_a_typed_failure_and_runs_nothing_else(minicpm, kinds, case):
    text, expected = MALFORMED[case]
    parsed = minicpm.parse(text, truncated=False)
    assert (kinds(parsed), parsed.answer) == (expected, None)


def test_a_call_is_written_as_the_template_writes_it(minicpm):
    assert minicpm.write_call(ToolCall("search", {"query": "a<b", "limit": 3})) == call(
        query="<![CDATA[a<b]]>", limit=3
    )


def test_hostile_turns_are_read_in_linear_time(minicpm, assert_linear):
    pieces = [
        NOW,
        '<function name="a">',
        '<param name="q">',
        '<param name="q"><![CDATA[',
        "]]>",
        "</param>",
        "<![CDATA[",
    ]
    assert_linear(minicpm, [*pieces, call(query="<![CDATA["), call(fields="["), "</function>"], num_characters=10_000)
