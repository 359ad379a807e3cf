"""Calls in tags with names in attributes: MiniMax M2, DeepSeek V3.2's DSML, Kimi K3."""

import re

import pytest

from rlf.chat.repair import stand_in
from rlf.types import ToolCall, ToolDescription

SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
}
TOOLS = (ToolDescription("search", "Finds.", SCHEMA), ToolDescription("now", "The time.", {"type": "object"}))


def minimax(inside):
    return f"<minimax:tool_call>\n{inside}\n</minimax:tool_call>"


def dsml(inside):
    for key, kind in (("query", "true"), ("limit", "false")):
        inside = inside.replace(f'name="{key}">', f'name="{key}" string="{kind}">')
    for tag in ("invoke", "parameter"):
        inside = inside.replace(f"<{tag} ", f"<｜DSML｜{tag} ").replace(f"</{tag}>", f"</｜DSML｜{tag}>")
    return f"<｜DSML｜function_calls>\n{inside}\n</｜DSML｜function_calls>"


def kimi(inside):
    for key, kind in (("query", "string"), ("limit", "number")):
        opening = f'<|open|>argument key="{key}" type="{kind}"<|sep|>'
        inside = inside.replace(f'<parameter name="{key}">', opening)
    inside = re.sub(r'<invoke name="(.*?)">', r'<|open|>call tool="\1" index="1"<|sep|>', inside)
    inside = inside.replace("</parameter>", "<|close|>argument<|sep|>").replace("</invoke>", "<|close|>call<|sep|>")
    return f"<|open|>tools<|sep|>\n{inside}\n<|close|>tools<|sep|>"


WRITERS = {"minimax_m2": minimax, "deepseek_v32": dsml, "kimi_k3": kimi}


@pytest.fixture(scope="module", params=WRITERS)
def family(request):
    return stand_in(request.param, TOOLS), WRITERS[request.param]


def call(name="search", **arguments):
    values = "\n".join(f'<parameter name="{key}">{value}</parameter>' for key, value in arguments.items())
    return f'<invoke name="{name}">\n{values}\n</invoke>'


def test_the_calls_of_a_section_are_read(family):
    chat, write = family
    text = "I look.\n" + write("\n".join([call(query="42", limit=3), call("now"), call(query=" a\n", limit="null")]))
    expected = [("search", {"query": "42", "limit": 3}), ("now", {}), ("search", {"query": " a\n", "limit": None})]
    assert [(one.name, one.arguments) for one in chat.parse(text, truncated=False).items] == expected


@pytest.mark.parametrize(
    "text", ["</parameter>", "a</parameter>b", "</invoke>", "<think>x</think>", "<b>&amp;", '"', ""]
)
def test_a_closing_tag_alone_inside_a_text_is_data(family, text):
    chat, _ = family
    written = ToolCall("search", {"query": text, "limit": 1})
    assert chat.parse(chat.write_call(written), truncated=False).items == (written,)


MALFORMED = {
    "no end of a value": ('<invoke name="search"><parameter name="query">a</invoke>', ["unterminated"]),
    "two values run together": (
        '<invoke name="search"><parameter name="query">a<parameter name="limit">1</parameter></invoke>',
        ["unterminated"],
    ),
    "no end of a call": ('<invoke name="search"><parameter name="query">a</parameter>', ["unterminated"]),
    "a call inside a value": (f'<invoke name="search"><parameter name="query">{call("now")}', ["unterminated"]),
    "nothing": ("", ["bad_call"]),
    "words": ("search for Vell", ["bad_call"]),
    "words after a call": (f"{call('now')} and so", ["bad_call"]),
    "no name": (call(""), ["missing_name"]),
    "no JSON": (f"{call('now')}{call(limit='three')}", ["now", "bad_arguments"]),
    "twice": (
        call(query="a").replace("\n</invoke>", '<parameter name="query">b</parameter></invoke>'),
        ["bad_arguments"],
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_call_is_a_typed_failure_and_runs_nothing_else(family, kinds, case):
    chat, write = family
    inside, expected = MALFORMED[case]
    parsed = chat.parse(write(inside), truncated=False)
    assert (kinds(parsed), parsed.answer) == (expected, None)


def test_nothing_thought_is_run(family, kinds):
    chat, write = family
    opening, closing = chat.think
    parsed = chat.parse(f"{opening}{write(call('now'))}{closing}{write(call(query='a'))}", truncated=False)
    assert kinds(parsed) == ["in_thinking", "search"]


def test_a_section_of_v4_is_read_and_a_parameter_that_does_not_say_what_it_is_is_refused(kinds):
    chat = stand_in("deepseek_v32", TOOLS)
    later = dsml(call(query="a")).replace("function_calls", "tool_calls")
    assert kinds(chat.parse(later, truncated=False)) == ["search"]
    assert kinds(chat.parse(later.replace(' string="true"', ""), truncated=False)) == ["bad_arguments"]


def test_hostile_turns_are_read_in_linear_time(family, assert_linear):
    chat, write = family
    pieces = [
        write(""),
        write("").split("\n")[0],
        call(query="a"),
        '<invoke name="a">',
        '<parameter name="q">',
        "</parameter>",
    ]
    pieces += [other(piece).split("\n")[1] for piece in pieces[3:] for other in (dsml, kimi)] + ["<think>", " \n"]
    assert_linear(chat, pieces, num_characters=10_000)
