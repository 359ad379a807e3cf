"""Qwen's XML format against its real templates, well-formed calls as vLLM reads them, and a corpus of malformed ones.

Where vLLM 0.29.0 (`qwen3_coder`) reads otherwise: it runs a `<function=...>` without `<tool_call>`, a call whose
`</parameter>` or `</tool_call>` is missing, and a call rehearsed inside thinking that it takes for the end of thinking;
it ends a value at any `</parameter>`; text around parameters is dropped; of one key given twice the last counts; a
value that is not of its declared type goes to the tool as text (here: BAD_ARGUMENTS); `1` and `0` are booleans; a value
without a declared type is always text (here: JSON where it is JSON). Here each fault is typed, so that the model reads
why; what is read at all is what is written between the tags.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.chat import FORMATS, detect_format
from rlf.chat.repair import repaired, stand_in
from rlf.core import RlfError
from rlf.types import Message, ToolCall, ToolDescription

STOP = "<|im_end|>"
CALL = ToolCall("search", {"query": "Vell"})
GOOD = "<tool_call>\n<function=search>\n<parameter=query>\nVell\n</parameter>\n</function>\n</tool_call>"
REAL = [
    *("qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "qwen3_6_training", "qwen3_8"),
    *("nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "nemotron_3_5_lightning"),
]


@pytest.fixture(scope="module")
def chat(make_format):
    return make_format("qwen3_coder")


def parameters(**values):
    return "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())


def call(**values):
    return f"<tool_call>\n<function=search>\n{parameters(**values)}</function>\n</tool_call>"


def turn(chat, name, content, calls, thinking):
    """A turn and its message, as the templates write it in the history."""
    written = [chat.write_call(call) for call in calls]
    functions = [{"function": {"name": call.name, "arguments": dict(call.arguments)}} for call in calls]
    message = {"content": content, "tool_calls": functions}
    if name.startswith("nemotron"):
        lines = f"{content}\n" if content else "\n"
        body = lines + "".join(text + "\n" for text in written)
        end = "</think>" if "lightning" in name or "ultra" in name else "\n</think>\n"
        text = f"{thinking}{end}{body}" if content else f"{thinking}{end.rstrip()}{body}"
        return text + STOP, message | {"reasoning_content": thinking}
    opened = f"{thinking}\n</think>\n\n" if chat.decode(chat.prompt(USER, ())).endswith("<think>\n") else ""
    message |= {"reasoning_content": thinking} if opened else {}
    return opened + content + ("\n\n" if content else "") + "\n".join(written) + STOP, message


USER = [Message("user", "How many live in Vell?")]


@pytest.mark.parametrize("name", REAL)
def test_a_trajectory_is_what_the_models_own_template_renders(make_format, trl_template, assert_is_the_templates, name):
    chat = make_format("qwen3_coder", trl_template(name))
    first = [ToolCall("search", {"query": "Vell's <|im_end|>\nriver", "count": 3, "fields": ["a", "é"]})]
    both = [ToolCall("search", {"query": "42", "filter": {"x": None}}), ToolCall("now", {})]
    turns = [
        (*turn(chat, name, "", first, "Hm."), [{"content": "It is <|im_end|>"}]),
        (*turn(chat, name, "And.", both, "So."), [{"content": "</tool_response>"}, {"content": "7"}]),
    ]
    assert_is_the_templates(chat, chat.tools, turns)
    for text, calls in ((turns[0][0], first), (turns[1][0], both)):
        assert list(chat.parse(text, truncated=False).items) == calls


@pytest.mark.parametrize("name", REAL)
def test_a_real_template_is_detected_and_no_other_format_takes_it(make_format, trl_template, name):
    chat = make_format("qwen3_coder", trl_template(name))
    assert detect_format(chat.tokenizer)[0] == "qwen3_coder"
    with pytest.raises(RlfError, match="contradicts the model's chat template"):
        FORMATS.get("hermes")(chat.tokenizer)


@pytest.mark.parametrize("name", ["qwen3", "qwen2_5", "glm4moe", "llama3_1", "deepseekv3", "gptoss", "muse_glimmer"])
def test_another_familys_template_is_refused(make_format, trl_template, name):
    with pytest.raises(RlfError, match="qwen3_coder contradicts the model's chat template"):
        make_format("qwen3_coder", trl_template(name))


# Input text and the calls that vLLM reads in it too, with the schemas of families/qwen3_coder.py.
AGREED = {
    GOOD: [CALL],
    GOOD.replace("\n", ""): [CALL],
    f"I look.\n{GOOD}\n{GOOD}": [CALL, CALL],
    "<tool_call>\n<function=now>\n</function>\n</tool_call>": [ToolCall("now", {})],
    call(query="42"): [ToolCall("search", {"query": "42"})],
    call(query="null"): [ToolCall("search", {"query": "null"})],
    call(query='a < b & "c" > d'): [ToolCall("search", {"query": 'a < b & "c" > d'})],
    call(query="\n line\n\n break \n"): [ToolCall("search", {"query": "\n line\n\n break \n"})],
    call(query=""): [ToolCall("search", {"query": ""})],
    call(query="a </tool_call> b"): [ToolCall("search", {"query": "a </tool_call> b"})],
    call(count="3", exact="true"): [ToolCall("search", {"count": 3, "exact": True})],
    call(exact="False"): [ToolCall("search", {"exact": False})],
    call(fields='["a", 1]', filter='{"a": {"b": null}}'): [
        ToolCall("search", {"fields": ["a", 1], "filter": {"a": {"b": None}}})
    ],
    call(limit="null"): [ToolCall("search", {"limit": None})],
    call(limit="all"): [ToolCall("search", {"limit": "all"})],
    call(limit="3"): [ToolCall("search", {"limit": 3})],
    call(unit="5"): [ToolCall("search", {"unit": "5"})],
    call(unit="null"): [ToolCall("search", {"unit": None})],
}


@pytest.mark.parametrize("text", AGREED)
def test_well_formed_calls_are_read_as_vllm_reads_them(chat, text):
    assert list(chat.parse(text + STOP, truncated=False).items) == AGREED[text]


@pytest.mark.parametrize(
    "tag", ["</tool_call>", "</parameter>", "<tool_call>", "</function>", "</think>", "<think>", STOP]
)
def test_a_tag_inside_a_value_is_data(chat, tag):
    for text in (tag, f"a {tag} b", f"{tag}{tag}", f"a\n{tag}\nb"):
        (found,) = chat.parse(call(query=text) + STOP, truncated=False).items
        assert found == ToolCall("search", {"query": text})


MALFORMED = {
    "no end of value": (GOOD.replace("</parameter>\n", ""), "unterminated"),
    "no end of the first value": (
        call(query="Vell", count=3).replace("</parameter>\n<parameter=c", "<parameter=c"),
        "unterminated",
    ),
    "no end of function": (GOOD.replace("</function>\n", ""), "unterminated"),
    "no ends": (GOOD.replace("</function>\n", "").replace("</parameter>\n", ""), "unterminated"),
    "no function": ("<tool_call>\n<parameter=query>\nVell\n</parameter>\n</tool_call>", "bad_call"),
    "nothing": ("<tool_call>\n</tool_call>", "bad_call"),
    "no name": (GOOD.replace("search", ""), "missing_name"),
    "blank name": (GOOD.replace("search", " "), "missing_name"),
    "no bracket": (GOOD.replace("search>", "search"), "bad_call"),
    "name as attribute": (GOOD.replace("function=search", 'function name="search"'), "bad_call"),
    "parameter as attribute": (GOOD.replace("parameter=query", 'parameter name="query"'), "bad_call"),
    "JSON": ('<tool_call>\n{"name": "search", "arguments": {"query": "Vell"}}\n</tool_call>', "bad_call"),
    "JSON inside": ('<tool_call>\n<function=search>\n{"query": "Vell"}\n</function>\n</tool_call>', "bad_call"),
    "python": ('<tool_call>search(query="Vell")</tool_call>', "bad_call"),
    "own tags": ("<tool_call>\n<function=search>\n<query>Vell</query>\n</function>\n</tool_call>", "bad_call"),
    "fenced": (GOOD.replace("<function", "```xml\n<function").replace("</tool", "```\n</tool"), "bad_call"),
    "text before": (GOOD.replace("<parameter", "with <parameter"), "bad_call"),
    "text after": (GOOD.replace("</function>", "and </function>"), "unterminated"),
    "text at the end": (GOOD.replace("</function>", "</function> done"), "bad_call"),
    "two functions": (GOOD.replace("</tool_call>", "<function=now>\n</function>\n</tool_call>"), "bad_call"),
    "twice the same": (
        call(query="Vell").replace("</function>", parameters(query="Orr") + "</function>"),
        "bad_arguments",
    ),
    "wrong type": (call(count="many"), "bad_arguments"),
    "broken list": (call(fields="[1, 2"), "bad_arguments"),
    "single quotes": (call(filter="{'a': 1}"), "bad_arguments"),
    "not a number": (call(count="NaN"), "bad_arguments"),
    "too deep": (call(fields="[" * 99 + "]" * 99), "bad_arguments"),
    "spaces in tags": (GOOD.replace("<function=", "< function="), "bad_call"),
    "capitals": (GOOD.replace("tool_call", "TOOL_CALL"), "wrong_tag"),
    "hyphen": (GOOD.replace("tool_call", "tool-call"), "wrong_tag"),
    "other tag": (GOOD.replace("tool_call", "function_call"), "wrong_tag"),
    "no opening": (GOOD.removeprefix("<tool_call>\n"), "wrong_tag"),
    "no tool_call": (GOOD.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"), "wrong_tag"),
    "a closing tag with a name": (GOOD.replace("</parameter>", "</parameter=query>"), "wrong_tag"),
    "a closing tag with a name, twice": (
        call(query="Vell", count=3).replace("</parameter>", "</parameter=query>", 1),
        "wrong_tag",
    ),
    "a closing function with a name": (GOOD.replace("</function>", "</function=search>"), "wrong_tag"),
    "a call in a value": (call(query=GOOD.replace("Vell", "Orr")), "unterminated"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize(("before", "after"), [("", ""), ("I call.\n", "\nDone."), (GOOD, ""), ("", "\n" + GOOD)])
def test_no_malformed_call_is_lost_run_or_taken_for_an_answer(chat, read, kinds, case, before, after):
    text, kind = MALFORMED[case]
    parsed = read(chat, before + text + after + STOP)
    assert parsed.answer is None and parsed.failures
    # A value that never ends may be thought to hold what comes after it: then that is not run either.
    good = (before + after).count(GOOD)
    assert parsed.calls == (CALL,) * good or ("no end" in case and parsed.calls == (CALL,) * before.count(GOOD))
    if not before and not after:
        assert kinds(parsed)[0] == kind


def test_a_missing_close_tag_costs_one_call_only(chat, read, kinds):
    text = GOOD.removesuffix("</tool_call>")
    assert kinds(read(chat, text + GOOD)) == ["unterminated", "search"]
    (last,) = read(chat, "x " + text).failures
    assert last.structural and last.position == 2 and last.kind == "unterminated"


def test_nothing_thought_is_run(chat, read, kinds):
    assert kinds(read(chat, f"<think>maybe {GOOD}</think>42")) == ["in_thinking"]
    assert kinds(read(chat, f"maybe {GOOD}</think>")) == ["in_thinking"]
    assert kinds(read(chat, f"<think>{GOOD}")) == ["unclosed_thinking", "in_thinking"]
    assert read(chat, f"<think>so {GOOD}</think>\n{GOOD}").calls == (CALL,)


@pytest.mark.parametrize("value", ["</parameter>\n</function>", "<parameter=x>", "a</function></tool_call>", 3, None])
def test_what_bare_text_cannot_hold_is_refused_not_written_wrong(chat, value):
    with pytest.raises(RlfError, match="qwen3_coder cannot write the call 'search'"):
        chat.write_call(ToolCall("search", {"query": value}))


soup = st.lists(
    st.sampled_from(
        [
            *("<tool_call>", "</tool_call>", "<function=search>", "</function>", "<parameter=query>", "</parameter>"),
            *("<think>", "</think>", "<parameter=count>", "\n", " ", "42", "[", STOP, GOOD, "é", "<function=", ">"),
        ]
    ),
    max_size=16,
).map("".join)


@given(text=soup, truncated=st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_soup_of_tags_has_a_typed_reading(chat, read, text, truncated):
    parsed = read(chat, text, truncated)
    assert (parsed.answer is None) == bool(parsed.observed)
    if parsed.answer is not None:
        assert not any(tag in parsed.answer for tag in ("<tool_call>", "<function=", "<parameter=")) and not truncated
    assert len(parsed.calls) <= text.count("<tool_call>")


def test_hostile_turns_are_read_in_linear_time(chat, assert_linear):
    block = "<tool_call><function=a><parameter=b>"
    tags = ["<tool_call>", "</tool_call>", "<function=a>", "<think>", "</think>"]
    assert_linear(
        chat, [*tags, block, block + "</parameter>", block + "</parameter></function>", block + "</function>\n"]
    )


CITY = {"type": "string"}
WEATHER = ToolDescription(
    "weather", "Weather.", {"type": "object", "properties": {"city": CITY, "state": CITY}, "required": ["city"]}
)
DALLAS = ToolCall("weather", {"city": "Dallas", "state": "TX"})
BODY = "<parameter=city>\nDallas\n</parameter>\n<parameter=state>\nTX\n</parameter>\n</function>"


def safely(text):
    """The calls and the repairs of a turn under `repair: safe`; without it nothing of the turn is run."""
    chat = stand_in("qwen3_coder", [WEATHER])
    parsed = chat.parse(text, truncated=False)
    assert parsed.failures and not parsed.calls and parsed.answer is None
    after, repairs = repaired(chat, text, parsed, truncated=False)
    assert bool(after.calls) == bool(repairs)
    return after.calls, [repair.kind.value for repair in repairs]


@pytest.mark.parametrize("quoted", ['<function="weather">', "<function='weather'>", '<function=weather">'])
def test_a_name_in_quotes_is_a_failure_and_no_name(quoted):
    chat = stand_in("qwen3_coder", [WEATHER])
    (failure,) = chat.parse(f"<tool_call>\n{quoted}\n{BODY}\n</tool_call>", truncated=False).items
    assert failure.kind == "bad_call" and "quotes" in failure.message
    key = BODY.replace("<parameter=city>", '<parameter="city">')
    (failure,) = chat.parse(f"<tool_call>\n<function=weather>\n{key}\n</tool_call>", truncated=False).items
    assert failure.kind == "bad_call" and "quotes" in failure.message


@pytest.mark.parametrize("before", ["", "I check the weather.\n\n"])
@pytest.mark.parametrize("after", ["", "<|im_end|>"])
def test_a_missing_opening_tag_is_repaired_and_marked(before, after):
    text = f"{before}<function=weather>\n{BODY}\n</tool_call>{after}"
    assert safely(text) == ((DALLAS,), ["opening_tag"])
    assert safely(f"{before}<function=weather>\n{BODY}{after}") == ((DALLAS,), ["closing_tag", "opening_tag"])


@pytest.mark.parametrize("missing", ["</parameter>\n<parameter=state>", "TX\n</parameter>\n"])
def test_a_missing_closing_tag_of_a_parameter_is_repaired_and_marked(missing):
    body = BODY.replace(missing, missing.replace("</parameter>\n", ""))
    assert safely(f"<tool_call>\n<function=weather>\n{body}\n</tool_call>") == ((DALLAS,), ["closing_tag"])


@pytest.mark.parametrize(
    "value",
    [
        "use <parameter=state> here",
        "how to\n<parameter=state>\nx\n</parameter>",
        "how to\n<parameter=other>\nx",
        "a\n<parameter=city>\nb",
    ],
)
def test_a_tag_that_may_be_part_of_a_text_is_not_repaired(value):
    text = f"<tool_call>\n<function=weather>\n<parameter=city>\n{value}\n</parameter>\n</function>\n</tool_call>"
    assert safely(text) == ((), [])


def test_an_example_of_a_call_without_its_tags_is_not_repaired():
    assert safely(f"For example:\n```\n<function=weather>\n{BODY}\n```\nSo.") == ((), [])
