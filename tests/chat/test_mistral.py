"""Mistral's calls in both generations: trajectories, well-formed calls as vLLM reads them, a corpus of malformed ones.

TRL ships no template of the family with tools; those here are written after the published ones (7B v0.3, Small 3.1; the
later `name[CALL_ID]...[ARGS]...`), cut to what they write of tools, calls and results.

Where vLLM 0.29.0 (`mistral`) reads otherwise: a second `[TOOL_CALLS]` before a list is an exception, as is an object in
place of the list; a list with one bad call is an exception or loses the good ones; arguments that are no object, a call
without arguments, and text glued to the JSON are run; a call inside thinking ends the thinking and is run.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.chat import FORMATS, detect_format
from rlf.core import RlfError
from rlf.types import ToolCall

STOP = "</s>"
CALL = ToolCall("search", {"query": "Vell"})
OTHER = ToolCall("now", {})
OBJECT = '{"name": "search", "arguments": {"query": "Vell"}}'
GOOD = f"[TOOL_CALLS] [{OBJECT}]"
NAMED = '[TOOL_CALLS]search[ARGS]{"query": "Vell"}'
NAMED_TEMPLATE = """
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' if tools and loop.index0 == 0 else '' }}
        {{- '[INST]' + message.content + '[/INST]' }}
    {%- elif message.tool_calls %}
        {%- for call in message.tool_calls %}
            {{- '[TOOL_CALLS]' + call.function.name + '[CALL_ID]' + call.id }}
            {{- '[ARGS]' + (call.function.arguments | tojson) }}
        {%- endfor %}
        {{- eos_token }}
    {%- elif message.role == 'assistant' %}
        {{- message.content + eos_token }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS]' + message.tool_call_id + '[TOOL_CONTENT]' + message.content + '[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}"""


@pytest.fixture(scope="module")
def chat(make_format):
    return make_format("mistral")


@pytest.fixture(scope="module")
def named(make_format):
    return make_format("mistral", NAMED_TEMPLATE)


def dump(value):
    return json.dumps(value, ensure_ascii=False)


def as_list(calls, ids):
    shown = [{"name": c.name, "arguments": dict(c.arguments), "id": i} for c, i in zip(calls, ids, strict=True)]
    return f"[TOOL_CALLS] [{', '.join(map(dump, shown))}]{STOP}"


def as_named(calls, ids):
    pairs = zip(calls, ids, strict=True)
    return "".join(f"[TOOL_CALLS]{c.name}[CALL_ID]{i}[ARGS]{dump(dict(c.arguments))}" for c, i in pairs) + STOP


@pytest.mark.parametrize(("fixture", "write"), [("chat", as_list), ("named", as_named)])
def test_a_trajectory_is_what_the_template_renders(request, tools, assert_is_the_templates, fixture, write):
    chat = request.getfixturevalue(fixture)
    turns = []
    for calls, ids, results in [
        ([ToolCall("search", {"query": "Vell's </s>\nriver é", "n": [1, None]})], ["abcDEF123"], ["It is [/INST] 1"]),
        ([CALL, OTHER], ["aaaaaaaaa", "000000009"], ["[/TOOL_RESULTS]", ""]),
    ]:
        pairs = list(zip(calls, ids, strict=True))
        shown = [{"id": i, "function": {"name": c.name, "arguments": dict(c.arguments)}} for c, i in pairs]
        answers = [{"content": text, "tool_call_id": i} for text, i in zip(results, ids, strict=True)]
        turns.append((write(calls, ids), {"content": "", "tool_calls": shown}, answers))
        assert list(chat.parse(write(calls, ids), truncated=False).items) == calls
    assert_is_the_templates(chat, tools, turns)


def test_a_result_carries_the_id_of_its_call_or_its_number(chat):
    turn = f'[TOOL_CALLS] [{OBJECT[:-1]}, "id": "abcdefghi"}}, {OBJECT}, {{}}, {OBJECT[:-1]}, "id": "no</s>"}}]{STOP}'
    shown = chat.decode(chat.observation(["a", "b", "c", "d"], closed=True, turn=turn))
    ids = [part[:9] for part in shown.split('"call_id": "')[1:]]
    assert ids == ["abcdefghi", "000000001", "000000002", "000000003"]


def test_the_templates_generation_is_written(chat, named, make_format):
    assert chat.write_call(CALL) == GOOD
    assert named.write_call(CALL) == NAMED
    close = make_format("mistral", "{# [TOOL_CALLS][ #}")
    assert close.write_call(CALL) == GOOD.replace("] [{", "][{")
    with pytest.raises(RlfError, match="mistral cannot write the call"):
        named.write_call(ToolCall("a[ARGS]", {}))


def test_the_template_is_detected_and_no_other_format_takes_it(chat, named):
    for each in (chat, named):
        assert detect_format(each.tokenizer)[0] == "mistral"
        with pytest.raises(RlfError, match="contradicts the model's chat template"):
            FORMATS.get("hermes")(each.tokenizer)


@pytest.mark.parametrize("name", ["llama3_1", "qwen3", "qwen3_6", "glm4moe", "deepseekv3", "gptoss", "llava_next"])
def test_another_familys_template_is_refused(make_format, trl_template, name):
    with pytest.raises(RlfError, match="mistral contradicts the model's chat template"):
        make_format("mistral", trl_template(name))


# Input text and the calls that vLLM reads in it too: with a tokenizer before v11, and from v11 on.
AGREED_LIST = {
    GOOD: [CALL],
    GOOD.replace("] [", "]["): [CALL],
    f"I look. {GOOD}": [CALL],
    f"{GOOD} And I wait.": [CALL],
    f'[TOOL_CALLS] [{OBJECT}, {{"name": "now", "arguments": {{}}}}]': [CALL, OTHER],
    f'[TOOL_CALLS] [{OBJECT[:-1]}, "id": "abcdefghi"}}]': [CALL],
    f"[TOOL_CALLS]\n[\n  {OBJECT}\n]": [CALL],
    '[TOOL_CALLS] [{"name": "search", "arguments": {"query": "a]}[\\"[ARGS] b", "c": {"d": [1, null]}}}]': [
        ToolCall("search", {"query": 'a]}["[ARGS] b', "c": {"d": [1, None]}})
    ],
    "It is [42].": [],
}
AGREED_NAMED = {
    NAMED: [CALL],
    NAMED.replace("[ARGS]", ""): [CALL],
    f"I look. {NAMED}": [CALL],
    f"{NAMED}[TOOL_CALLS]now[ARGS]{{}}": [CALL, OTHER],
    f"{NAMED} And I wait.": [CALL],
    '[TOOL_CALLS]search[ARGS]{"query": "a}{[ARGS] b", "c": {"d": [1, null]}}': [
        ToolCall("search", {"query": "a}{[ARGS] b", "c": {"d": [1, None]}})
    ],
    "It is [42].": [],
}
# Read here though vLLM does not.
PLAIN = {
    f"{GOOD}\n{GOOD}": [CALL, CALL],
    '[TOOL_CALLS]search[CALL_ID]abcdefghi[ARGS]{"query": "Vell"}': [CALL],
    f"[THINK]hm[/THINK]{NAMED}": [CALL],
    f"<think>hm</think>{GOOD}": [CALL],
}


@pytest.mark.parametrize("text", [*AGREED_LIST, *AGREED_NAMED, *PLAIN])
def test_well_formed_calls_are_read_as_vllm_reads_them(chat, named, text):
    expected = (AGREED_LIST | AGREED_NAMED | PLAIN)[text]
    for each in (chat, named):
        parsed = each.parse(text + STOP, truncated=False)
        assert list(parsed.items) == expected and (parsed.answer is None) == bool(expected)


MALFORMED = {
    "single quotes": (GOOD.replace('"', "'"), "bad_json"),
    "trailing comma": (GOOD.replace("}]", "},]"), "bad_json"),
    "comma in arguments": (GOOD.replace("}}", ",}}"), "bad_json"),
    "missing brace": (GOOD.replace("}}", "}"), "bad_json"),
    "missing bracket": (GOOD[:-1], "bad_json"),
    "raw newline": (GOOD.replace("Vell", "Ve\nll"), "bad_json"),
    "NaN": (GOOD.replace('"Vell"', "NaN"), "bad_json"),
    "too deep": (GOOD.replace('"Vell"', "[" * 99 + "]" * 99), "bad_json"),
    "glued bracket": (GOOD + "]", "bad_json"),
    "glued brace": (NAMED + "}", "bad_json"),
    "empty list": ("[TOOL_CALLS] []", "bad_call"),
    "an object": (f"[TOOL_CALLS] {OBJECT}", "bad_call"),
    "words in a list": ('[TOOL_CALLS] ["search"]', "bad_call"),
    "a list in a list": (f"[TOOL_CALLS] [[{OBJECT}]]", "bad_call"),
    "parameters": (GOOD.replace("arguments", "parameters"), "bad_arguments"),
    "a string of arguments": (GOOD.replace('{"query": "Vell"}', '"{}"'), "bad_arguments"),
    "no arguments": ('[TOOL_CALLS] [{"name": "search"}]', "bad_arguments"),
    "no name": (GOOD.replace('"name": "search", ', ""), "missing_name"),
    "extra key": (GOOD.replace("}}", '}, "x": 1}'), "bad_call"),
    "OpenAI's form": (f'[TOOL_CALLS] [{{"type": "function", "function": {OBJECT}}}]', "missing_name"),
    "fenced": (f"[TOOL_CALLS] ```json\n[{OBJECT}]\n```", "bad_call"),
    "nothing": ("[TOOL_CALLS]", "bad_call"),
    "a sentence": ("[TOOL_CALLS] I search for Vell.", "bad_call"),
    "python": ('[TOOL_CALLS]search(query="Vell")', "bad_call"),
    "named without a name": ('[TOOL_CALLS][ARGS]{"query": "Vell"}', "missing_name"),
    "named without arguments": ("[TOOL_CALLS]search[ARGS]", "bad_call"),
    "named with a list": ('[TOOL_CALLS]search[ARGS]["Vell"]', "bad_call"),
    "named with a string": ('[TOOL_CALLS]search[ARGS]"Vell"', "bad_call"),
    "named, single quotes": (NAMED.replace('"', "'"), "bad_json"),
    "named, missing brace": (NAMED[:-1], "bad_json"),
    "named, two words": (NAMED.replace("search", "search now"), "bad_call"),
    "no mark": (f"[{OBJECT}]", "wrong_tag"),
    "other mark": (GOOD.replace("TOOL_CALLS", "TOOL_CALL"), "wrong_tag"),
    "small mark": (GOOD.replace("TOOL_CALLS", "tool_calls"), "wrong_tag"),
    "arguments alone": ('search[ARGS]{"query": "Vell"}', "wrong_tag"),
    "hermes": (f"<tool_call>{OBJECT}</tool_call>", "wrong_tag"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("I call.\n", "\nDone."), (GOOD, ""), (NAMED, ""), ("", "\n" + GOOD), ("", NAMED)]
)
def test_no_malformed_call_is_lost_run_or_taken_for_an_answer(chat, read, kinds, case, before, after):
    text, kind = MALFORMED[case]
    parsed = read(chat, before + text + after + STOP)
    assert parsed.answer is None and parsed.failures
    assert all(call == CALL for call in parsed.calls)
    around = sum((before + after).count(mark) for mark in (GOOD, NAMED))
    # What nothing closes may hold what comes right after it: then that is not run either.
    assert around - bool(after) - bool(before and text[0] in "[<") <= len(parsed.calls) <= around
    if not before and not after:
        assert kinds(parsed)[0] == kind


def test_a_good_call_beside_a_bad_one_in_a_list_runs(chat, kinds):
    parsed = chat.parse(f'[TOOL_CALLS] [{OBJECT}, {{"name": "now"}}, {OBJECT}]', truncated=False)
    assert kinds(parsed) == ["search", "bad_arguments", "search"] and parsed.calls == (CALL, CALL)


@pytest.mark.parametrize(("opened", "closed"), [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
def test_nothing_thought_is_run(chat, read, kinds, opened, closed):
    for good in (GOOD, NAMED):
        assert kinds(read(chat, f"{opened}maybe {good}{closed}42")) == ["in_thinking"]
        assert kinds(read(chat, f"maybe {good}{closed}")) == ["in_thinking"]
        assert kinds(read(chat, f"{opened}{good}")) == ["unclosed_thinking", "in_thinking"]
        assert read(chat, f"{opened}so {good}{closed}\n{good}").calls == (CALL,)
    assert read(chat, f"{opened}so{closed}42").thinking == "so"


@pytest.mark.parametrize("tag", ["[TOOL_CALLS]", "[ARGS]", "</think>", "[/THINK]", STOP, GOOD, "}]", "]"])
def test_a_mark_inside_a_string_is_data(chat, named, tag):
    call = ToolCall("search", {"query": f"a {tag} b"})
    for each in (chat, named):
        assert each.parse(each.write_call(call) + STOP, truncated=False).items == (call,)


soup = st.lists(
    st.sampled_from(
        [
            *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]", "<think>", "</think>", "[", "]", "{", "}"),
            *("search", OBJECT, GOOD, NAMED, ",", '"', "'", " ", "\n", "42", STOP, "é", "\\"),
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
        assert "[TOOL_CALLS]" not in parsed.answer and OBJECT not in parsed.answer and not truncated


def test_hostile_turns_are_read_in_linear_time(chat, assert_linear):
    assert_linear(
        chat, ["[TOOL_CALLS]", "[TOOL_CALLS][", "[TOOL_CALLS][{", "[TOOL_CALLS]a{'", "[THINK]", "[/THINK]", "["]
    )
    assert_linear(
        chat, ['[TOOL_CALLS]a[ARGS]{"b":', "[TOOL_CALLS]a", "<think>", "</think>", "[TOOL_CALLS] " + "a" * 99]
    )
