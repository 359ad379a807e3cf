"""No call is lost because it is written off its format: each is a typed failure, whatever the format that reads it.

The fourteen slips are those on which verl's and rLLM's parsers gave no call without a word, or crashed.
"""

import json
import re

import pytest

from rlf.chat import FORMATS
from rlf.chat.repair import stand_in
from rlf.types import ToolCall, ToolDescription

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = ToolDescription("search", "Find a passage.", SCHEMA)
CALL = ToolCall("search", {"query": "Vell"})
NAMES = FORMATS.names()
JSON_CALLS = ("hermes", "mistral", "llama3")
JSON_ARGUMENTS = (*JSON_CALLS, "deepseek", "kimi_k2", "gpt_oss", "react")


def make_chat(name):
    return stand_in(name, [SEARCH])


# Formats that share a mark or read any JSON call see what is wrong with the call itself.
SHARED = {
    "hermes": {"glm4", "qwen3_coder", "llama3"},
    "glm4": {"hermes", "qwen3_coder"},
    "qwen3_coder": {"hermes", "glm4"},
    "mistral": {"llama3"},
    "llama3": set(),
    "deepseek": {"deepseek_fenced"},
    "deepseek_fenced": {"deepseek"},
}
ANSWERS = {"code_fence"}
"""Formats whose call is what an answer may show: a block of Python, where no tool is declared to run it."""


@pytest.mark.parametrize("writer", [name for name in NAMES if name not in ANSWERS])
def test_a_call_in_another_formats_marks_is_a_failure(writer):
    for reader in (name for name in NAMES if name != writer):
        parsed = make_chat(reader).parse(make_chat(writer).write_call(CALL), truncated=False)
        assert parsed.answer is None and not parsed.calls, reader
        kinds = {failure.kind for failure in parsed.failures}
        assert "wrong_tag" in kinds or reader in SHARED.get(writer, ()), reader


NEAR_MISSES = [
    'search(query="Vell")',
    "  search(query='Vell')\n",
    'I look it up.\nsearch(query="Vell")',
    'print(search(query="Vell"))',
    'await search("Vell")',
    "`search(query='Vell')`",
    '```python\nsearch(query="Vell")\n```',
    '- functions.search({"query": "Vell"})',
    "search()",
    "search(3)",
    'search {"query": "Vell"}',
    'search: {"query": "Vell"}',
    '{"arguments": {"query": "Vell"}, "name": "search"}',
    '{"tool": "search", "args": {"query": "Vell"}}',
    '{"function": "search", "parameters": {"query": "Vell"}}',
    "{'action': 'search', 'input': 'Vell'}",
    '{"type": "function", "function": {"name": "search", "arguments": "{}"}}',
    '<tools>{"name": "search"}</tools>',
    '<search>{"query": "Vell"}</search>',
    '<search><query>Vell</query></search>',
    '<invoke name="search"><parameter name="query">Vell</parameter></invoke>',
    '<tool_use>{"name": "search"}</tool_use>',
    '<function_call>{"name": "search"}</function_call>',
]  # fmt: skip


OWN_CALLS = {
    ("code_fence", '```python\nsearch(query="Vell")\n```'),
    ("llama3", '{"arguments": {"query": "Vell"}, "name": "search"}'),
    ("search_r1", '<search>{"query": "Vell"}</search>'),
    ("search_r1", "<search><query>Vell</query></search>"),
}
"""What the format itself writes calls like."""


@pytest.mark.parametrize("name", NAMES)
def test_a_call_of_a_declared_tool_without_its_marks_is_a_failure(name):
    chat = make_chat(name)
    for text in NEAR_MISSES:
        if not chat.parse(text, truncated=False).failures:
            assert (name, text) in OWN_CALLS
            continue
        for turn in (text, chat.write_answer(f"So:\n{text}"), f"<think>hm</think>{chat.write_answer(text)}"):
            parsed = chat.parse(turn, truncated=False)
            assert parsed.answer is None and parsed.failures and not parsed.calls, turn


ANSWERED = [
    "search (verb): to look for something.",
    "I used search, and the query was Vell.",
    "research(query) is a function of yours.",
    "Its name is search.",
    '{"query": "Vell"}',
    '{"name": "Vell", "residents": 900}',
    "The formula is f(x=1) = 2; call it with add(2, 3).",
    "Searching:\n- search: the act of looking\n- find: its end",
    "```python\nprint(len('Vell'))\n```",
]


@pytest.mark.parametrize("text", ANSWERED)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "code_fence"])
def test_an_answer_that_only_names_a_tool_is_an_answer(name, text):
    chat = make_chat(name)
    parsed = chat.parse(chat.write_answer(text), truncated=False)
    assert (parsed.items, parsed.answer) == ((), text)


def _json_of(text):
    found = re.search(r"\{.*\}", text, re.DOTALL)
    assert found is not None, text
    return found.group()


def _in_json(change):
    return lambda chat, text: text.replace(_json_of(text), change(_json_of(text)))


def _without_the_last_mark(chat, text):
    assert chat.call_ends, "there is a closing mark to leave out"
    return text[: text.rindex(chat.call_ends[0])]


def _arguments_as_a_string(text):
    value = json.loads(text)
    key = "arguments" if "arguments" in value else "parameters"
    return json.dumps(value | {key: json.dumps(value[key])})


def _renamed(text):
    return text.replace('"arguments"', '"x"').replace('"parameters"', '"arguments"').replace('"x"', '"parameters"')


CLOSED = ("hermes", "qwen3_coder", "glm4", "kimi_k2")
SLIPS = {
    "single quotes": (JSON_ARGUMENTS, _in_json(lambda text: text.replace('"', "'"))),
    "one single quote": (JSON_ARGUMENTS, _in_json(lambda text: text.replace('"}', "'}", 1))),
    "trailing comma": (JSON_ARGUMENTS, _in_json(lambda text: text.replace('"}', '",}', 1))),
    "no close tag": (CLOSED, _without_the_last_mark),
    "missing brace": (JSON_ARGUMENTS, _in_json(lambda text: text[:-1])),
    "fenced JSON": (JSON_ARGUMENTS, _in_json(lambda text: f"```json\n{text}\n```")),
    "a fence around the turn": (JSON_CALLS, lambda chat, text: f"```json\n{text}\n```"),
    "raw newline in a string": (JSON_ARGUMENTS, _in_json(lambda text: text.replace("Vell", "Ve\nll"))),
    "parameters for arguments": (("hermes", "mistral"), _in_json(_renamed)),
    "a list of calls": (JSON_CALLS, _in_json(lambda text: f"[{text}]")),
    "arguments as a JSON string": (JSON_CALLS, _in_json(_arguments_as_a_string)),
    "the second call malformed": (NAMES, lambda chat, text: f"{text}\n{text[: len(text) * 2 // 3]}"),
    "rehearsed in thinking": (NAMES, lambda chat, text: f"{chat.thinking_marks[0]}so {text}"),
    "no tag": (("hermes", "mistral"), lambda chat, text: _json_of(text)),
}
# What is no slip there: the format reads it as the call that it plainly is, or takes the rest for text of its own.
READ = {
    ("a fence around the turn", "hermes"),
    ("a fence around the turn", "mistral"),
}


@pytest.mark.parametrize(("slip", "name"), [(slip, name) for slip in SLIPS for name in SLIPS[slip][0]])
def test_none_of_the_fourteen_slips_is_lost(slip, name):
    chat = make_chat(name)
    text = SLIPS[slip][1](chat, chat.write_call(CALL))
    parsed = chat.parse(text, truncated=False)
    assert parsed.answer is None and (parsed.failures or (slip, name) in READ)
    assert all(call == CALL for call in parsed.calls)
    if slip == "rehearsed in thinking":
        assert not parsed.calls


def test_there_are_fourteen_slips():
    assert len(SLIPS) == 14
