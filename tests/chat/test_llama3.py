"""Llama 3's JSON calls against its real templates, well-formed ones as vLLM reads them, a corpus of malformed ones.

Where vLLM 0.29.0 (`llama3_json`) reads otherwise: one brace of prose that is no JSON makes it return no call at all; it
runs a call that is quoted, fenced, in a list or rehearsed inside thinking; it drops what stands beside a call, and keys
that no call has; it returns nothing when no space parts two calls; it knows no `name.call(key="value")`, which Llama's
own template writes for builtin tools.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.chat import FORMATS, detect_format
from rlf.core import RlfError
from rlf.types import ToolCall

STOP = "<|eot_id|>"
CALL = ToolCall("search", {"query": "Vell"})
GOOD = '{"name": "search", "parameters": {"query": "Vell"}}'


@pytest.fixture(scope="module")
def chat(make_format):
    return make_format("llama3")


@pytest.mark.parametrize("name", ["llama3_1", "llama3_2"])
def test_a_trajectory_is_what_llamas_own_template_renders(make_format, trl_template, assert_is_the_templates, name):
    chat = make_format("llama3", trl_template(name))
    turns = []
    for call, result in [
        (
            ToolCall("search", {"query": 'Vell\'s "<|eot_id|>"\nriver', "count": [3, None, 1.5]}),
            'It "is"\n<|eot_id|> é\t',
        ),
        (ToolCall("now", {}), ""),
    ]:
        shown = {"function": {"name": call.name, "arguments": dict(call.arguments)}}
        text = chat.write_call(call) + STOP
        turns.append((text, {"content": "", "tool_calls": [shown]}, [{"content": result}]))
        assert chat.parse(text, truncated=False).items == (call,)
    assert_is_the_templates(chat, chat.tools, turns)


@pytest.mark.parametrize("name", ["llama3_1", "llama3_2"])
def test_a_real_template_is_detected_and_no_other_format_takes_it(make_format, trl_template, name):
    chat = make_format("llama3", trl_template(name))
    assert detect_format(chat.tokenizer)[0] == "llama3"
    with pytest.raises(RlfError, match="contradicts the model's chat template"):
        FORMATS.get("hermes")(chat.tokenizer)


@pytest.mark.parametrize("name", ["llama3", "qwen3", "qwen3_6", "glm4moe", "deepseek_r1_distill", "gptoss", "phi3"])
def test_another_familys_template_is_refused(make_format, trl_template, name):
    with pytest.raises(RlfError, match="llama3 contradicts the model's chat template"):
        make_format("llama3", trl_template(name))


def test_a_turn_ends_at_the_end_of_turn_or_of_message(chat):
    assert chat.decode(chat.stop_token_ids) == "<|eot_id|><|eom_id|>"
    assert chat.parse(GOOD + "<|eom_id|>", truncated=False).calls == (CALL,)


OTHER = ToolCall("now", {})
# Input text and the calls that vLLM reads in it too.
AGREED = {
    GOOD: [CALL],
    f"<|python_tag|>{GOOD}": [CALL],
    f"  \n{GOOD}": [CALL],
    f"I look it up. {GOOD}": [CALL],
    f"{GOOD} I wait.": [CALL],
    GOOD.replace("parameters", "arguments"): [CALL],
    '{"type": "function", "name": "search", "parameters": {"query": "Vell"}}': [CALL],
    '{\n  "name": "search",\n  "parameters": {\n    "query": "Vell"\n  }\n}': [CALL],
    f'{GOOD}; {{"name": "now", "parameters": {{}}}}': [CALL, OTHER],
    f'<|python_tag|>{GOOD}; {{"name": "now", "parameters": {{}}}}': [CALL, OTHER],
    f'{GOOD}\n{{"name": "now", "parameters": {{}}}}': [CALL, OTHER],
    '{"name": "search", "parameters": {"query": "a}{\\"b", "c": {"d": [1, {"e": null}]}}}': [
        ToolCall("search", {"query": 'a}{"b', "c": {"d": [1, {"e": None}]}})
    ],
    '{"name": "search", "parameters": {"query": "é\\u4e2d; {x}"}}': [ToolCall("search", {"query": "é中; {x}"})],
    '{"a": 1}': [],
    "It is 42.": [],
    "the set {1, 2} holds": [],
    '{"name": "Ann", "age": 3}': [],
}


@pytest.mark.parametrize("text", AGREED)
def test_well_formed_calls_are_read_as_vllm_reads_them(chat, text):
    parsed = chat.parse(text + STOP, truncated=False)
    assert list(parsed.items) == AGREED[text]
    assert (parsed.answer is None) == bool(AGREED[text])


@pytest.mark.parametrize(
    "text", ["a {b} c", "{}", '{"a": {"b": [1]}}', "f(x) = {x}", "{", "}{", '[{"a": 1}]', '{"name": 3}']
)
def test_an_answer_with_braces_is_kept_whole(chat, text):
    assert chat.parse(text + STOP, truncated=False).answer == text


PLAIN = {
    f'{GOOD}{{"name": "now", "parameters": {{}}}}': [CALL, OTHER],
    '<|python_tag|>search.call(query="Vell")': [CALL],
    '<|python_tag|>search.call(query = "V", n=[1, {"a": null}])': [
        ToolCall("search", {"query": "V", "n": [1, {"a": None}]})
    ],
    "<|python_tag|>now.call()": [OTHER],
    '<|python_tag|>search.call(query="a) </tool_call>, b=1")': [ToolCall("search", {"query": "a) </tool_call>, b=1"})],
}


@pytest.mark.parametrize("text", PLAIN)
def test_what_vllm_does_not_read_but_is_plain_is_read(chat, text):
    assert list(chat.parse(text + "<|eom_id|>", truncated=False).items) == PLAIN[text]


MALFORMED = {
    "single quotes": (GOOD.replace('"', "'"), "bad_json"),
    "smart quotes": (GOOD.replace('"', "“"), "bad_json"),
    "no quotes": (GOOD.replace('"', ""), "bad_json"),
    "escaped": (GOOD.replace('"', '\\"'), "bad_json"),
    "trailing comma": (GOOD.replace("}}", ",}}"), "bad_json"),
    "comma at the end": (GOOD[:-1] + ",}", "bad_json"),
    "missing brace": (GOOD[:-1], "bad_json"),
    "raw newline": (GOOD.replace("Vell", "Ve\nll"), "bad_json"),
    "equals": (GOOD.replace(":", " ="), "bad_json"),
    "no comma": (GOOD.replace(",", ""), "bad_json"),
    "python's true": (GOOD.replace('"Vell"', "True"), "bad_json"),
    "NaN": (GOOD.replace('"Vell"', "NaN"), "bad_json"),
    "a comment": (GOOD.replace("{", "{// first\n", 1), "bad_json"),
    "too deep": (GOOD.replace('"Vell"', "[" * 99 + "]" * 99), "bad_json"),
    "no name": (GOOD.replace('"name": "search", ', ""), "missing_name"),
    "tool": (GOOD.replace('"name"', '"tool"'), "missing_name"),
    "name is a number": (GOOD.replace('"search"', "3"), "missing_name"),
    "empty name": (GOOD.replace("search", ""), "missing_name"),
    "nothing for parameters": (GOOD.replace('{"query": "Vell"}', "null"), "bad_arguments"),
    "a list of parameters": (GOOD.replace('{"query": "Vell"}', '["Vell"]'), "bad_arguments"),
    "a string of parameters": (GOOD.replace('{"query": "Vell"}', '"{\\"query\\": 1}"'), "bad_arguments"),
    "flat": ('{"name": "search", "query": "Vell"}', "bad_arguments"),
    "name alone": ('{"name": "search"}', "bad_arguments"),
    "both": (GOOD[:-1] + ', "arguments": {}}', "bad_arguments"),
    "extra key": (GOOD[:-1] + ', "id": 1}', "bad_call"),
    "OpenAI's form": (f'{{"type": "function", "function": {GOOD}}}', "bad_call"),
    "nested": (f'{{"call": {GOOD}}}', "bad_call"),
    "nested in no JSON": (f"{{call: {GOOD}}}", "bad_call"),
    "list": (f"[{GOOD}]", "bad_call"),
    "tuple": (f"({GOOD})", "bad_call"),
    "fenced": (f"```json\n{GOOD}\n```", "bad_call"),
    "backticks": (f"`{GOOD}`", "bad_call"),
    "quoted": (f"'{GOOD}'", "bad_call"),
    "a JSON string": (json.dumps(GOOD), "bad_json"),
    "extra brace": (GOOD + "}", "bad_call"),
    "commas between": (f"{GOOD},{GOOD}", "bad_call"),
    "code": ("<|python_tag|>print(1)", "bad_call"),
    "builtin unclosed": ('<|python_tag|>search.call(query="Vell"', "bad_arguments"),
    "builtin positional": ('<|python_tag|>search.call("Vell")', "bad_arguments"),
    "builtin twice": ('<|python_tag|>search.call(query="Vell", query="Vell")', "bad_arguments"),
    "builtin single quotes": ("<|python_tag|>search.call(query='Vell')", "bad_arguments"),
    "hermes": (f"<tool_call>{GOOD}</tool_call>", "wrong_tag"),
    "function tag": ('<function=search>{"query": "Vell"}</function>', "wrong_tag"),
    "mistral": (f"[TOOL_CALLS] [{GOOD}]", "wrong_tag"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("I call.\n", "\nDone."), (GOOD + "\n", ""), ("", "\n" + GOOD)]
)
def test_no_malformed_call_is_lost_run_or_taken_for_an_answer(chat, read, kinds, case, before, after):
    text, kind = MALFORMED[case]
    parsed = read(chat, before + text + after + STOP)
    assert parsed.answer is None and parsed.failures
    assert all(call == CALL for call in parsed.calls)
    # What nothing closes may hold what comes after it: then that is not run either.
    assert before.count(GOOD) <= len(parsed.calls) <= (before + after).count(GOOD)
    if not before and not after:
        assert kinds(parsed)[0] == kind


def test_nothing_thought_is_run(chat, read, kinds):
    assert kinds(read(chat, f"<think>maybe {GOOD}</think>42")) == ["in_thinking"]
    assert kinds(read(chat, f"maybe {GOOD}</think>")) == ["in_thinking"]
    assert kinds(read(chat, f"<think>{GOOD}")) == ["unclosed_thinking", "in_thinking"]
    assert read(chat, f"<think>so {GOOD}</think>\n{GOOD}").calls == (CALL,)


@pytest.mark.parametrize("tag", ["<|python_tag|>", "</think>", "<think>", STOP, GOOD, "}}", "```", "<tool_call>"])
def test_a_mark_inside_a_string_is_data(chat, tag):
    call = ToolCall("search", {"query": f"a {tag} b"})
    assert chat.parse(chat.write_call(call) + STOP, truncated=False).items == (call,)


soup = st.lists(
    st.sampled_from(
        [
            *("<|python_tag|>", "{", "}", "[", "]", '"name"', '"parameters"', ":", ",", ";", "search.call(", ")", '"'),
            *("<think>", "</think>", "\n", " ", "42", STOP, GOOD, "é", '{"name": "search", "parameters": {', "'", "\\"),
        ]
    ),
    max_size=16,
).map("".join)


@given(text=soup, truncated=st.booleans())
@settings(max_examples=250, deadline=None)
def test_any_soup_of_marks_has_a_typed_reading(chat, read, text, truncated):
    parsed = read(chat, text, truncated)
    assert (parsed.answer is None) == bool(parsed.observed)
    if parsed.answer is not None:
        assert "<|python_tag|>" not in parsed.answer and GOOD not in parsed.answer and not truncated


def test_hostile_turns_are_read_in_linear_time(chat, assert_linear):
    broken = '{"name": "a", "parameters": {'
    assert_linear(
        chat, ["{", "[{", '{"a":', "<|python_tag|>", "<|python_tag|>{", broken, broken + "'", "a.call(", "{}"]
    )
    assert_linear(chat, ["<|python_tag|>a.call(", '{"parameters": 1', "{'", "<think>", "</think>", '{"a": "'])
