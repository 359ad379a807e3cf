"""Kimi K2's format against its template's layout, well-formed calls as vLLM reads them, and malformed ones.

The stand-in's template follows the one that Moonshot publishes with Kimi-K2-Instruct.

Where vLLM 0.29.0 reads otherwise: it runs a call of a section that was opened inside thinking or never closed, passes
on arguments that are no JSON as they stand, and loses a call without an id, a call outside a section, and all text
after a section. Here each is a typed failure.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.chat import detect_format
from rlf.core import RlfError
from rlf.types import ToolCall

STOP = "<|im_end|>"
BEGIN, END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL = ToolCall("search", {"query": "Vell"})
ONE = '<|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{"query": "Vell"}<|tool_call_end|>'
NOW = "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
GOOD = f"{BEGIN}{ONE}{END}"


@pytest.fixture(scope="module")
def kimi(make_format):
    return make_format("kimi_k2")


def message(content, calls, first=0):
    asked = [
        {
            "id": f"functions.{c.name}:{first + i}",
            "type": "function",
            "function": {"name": c.name, "arguments": c.arguments},
        }
        for i, c in enumerate(calls)
    ]
    return {"content": content, "tool_calls": asked}


def test_a_trajectory_is_what_the_template_renders(kimi, tools, assert_is_the_templates):
    one, both = [CALL], [ToolCall("add", {"a": [1, None], "é": "<|im_end|>"}), CALL]

    def result(name, index, content):
        return {"name": name, "tool_call_id": f"functions.{name}:{index}", "content": content}

    turns = [
        (f"I look.{kimi.write_calls(one)}{STOP}", message("I look.", one), [result("search", 0, "<|im_end|> a\n")]),
        (kimi.write_calls(both) + STOP, message("", both), [result("add", 0, ""), result("search", 1, "## Return of")]),
    ]
    assert_is_the_templates(kimi, tools, turns)
    assert kimi.parse(turns[1][0], truncated=False).items == tuple(both)


def test_its_template_is_detected_and_anothers_refused(kimi, make_format, template):
    assert detect_format(kimi.tokenizer)[0] == "kimi_k2"
    with pytest.raises(RlfError, match="kimi_k2 contradicts"):
        make_format("kimi_k2", template)


def test_a_result_repeats_the_id_that_the_model_wrote(kimi):
    turn = f"{BEGIN}{ONE.replace(':0', ':7')}{ONE.replace('search:0', 'no:3').replace('}', '')}{END}{STOP}"
    shown = kimi.decode(kimi.observation(["900", "not JSON"], closed=True, turn=turn))
    assert shown == (
        "<|im_system|>search<|im_middle|>## Return of functions.search:7\n900<|im_end|>"
        "<|im_system|>no<|im_middle|>## Return of functions.no:3\nnot JSON<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>"
    )


def test_what_follows_a_turn_without_calls_is_the_users(kimi):
    shown = kimi.decode(kimi.observation(["No call.", "Twice."], closed=True, turn=BEGIN + STOP))
    assert shown == "<|im_user|>user<|im_middle|>No call.\nTwice.<|im_end|><|im_assistant|>assistant<|im_middle|>"


# Input text and the calls that vLLM's kimi_k2 parser reads in it too.
AGREED = {
    GOOD: [CALL],
    f"I look.{GOOD}": [CALL],
    f"{BEGIN}{ONE}{NOW}{END}": [CALL, ToolCall("now", {})],
    GOOD.replace("{", " {").replace("}", "} "): [CALL],
    GOOD.replace("functions.", ""): [CALL],
    f"{BEGIN}\n{ONE}\n{END}": [CALL],
    GOOD.replace('"Vell"', '"a \\"b\\" 中", "n": [1, {"x": null}], "t": true'): [
        ToolCall("search", {"query": 'a "b" 中', "n": [1, {"x": None}], "t": True})
    ],
    GOOD.replace("search:0", "a.b-c_d:12"): [ToolCall("a.b-c_d", {"query": "Vell"})],
}


@pytest.mark.parametrize("text", AGREED)
def test_well_formed_calls_are_read_as_vllm_reads_them(kimi, text):
    assert list(kimi.parse(text, truncated=False).items) == AGREED[text]


@pytest.mark.parametrize("tag", ["<|tool_call_end|>", END, BEGIN, ONE.replace('"', '\\"'), "</think>", STOP])
def test_a_mark_inside_a_string_is_data(kimi, tag):
    (call,) = kimi.parse(GOOD.replace("Vell", tag) + STOP, truncated=False).items
    assert call == ToolCall("search", {"query": tag.replace('\\"', '"')})


INNER = ONE.replace('"', '\\"')
MALFORMED = {
    "single quotes": (GOOD.replace('"', "'"), "bad_json"),
    "trailing comma": (GOOD.replace('"}', '",}'), "bad_json"),
    "missing brace": (GOOD.replace('"}', '"'), "bad_json"),
    "fenced": (GOOD.replace('{"query": "Vell"}', '```json\n{"query": "Vell"}\n```'), "bad_json"),
    "raw newline": (GOOD.replace("Vell", "Vell\nOrr"), "bad_json"),
    "text after the JSON": (GOOD.replace('"}', '"} and'), "bad_json"),
    "twice": (GOOD.replace('{"query": "Vell"}', '{"query": "Vell"}' * 2), "bad_json"),
    "a list": (GOOD.replace('{"query": "Vell"}', "[1]"), "bad_arguments"),
    "a string": (GOOD.replace('{"query": "Vell"}', '"{}"'), "bad_arguments"),
    "nothing": (GOOD.replace('{"query": "Vell"}', ""), "bad_json"),
    "no name": (GOOD.replace("search", ""), "missing_name"),
    "no id": (GOOD.replace("functions.search:0", ""), "missing_name"),
    "no number": (GOOD.replace(":0", ""), "bad_call"),
    "a sentence": (GOOD.replace("functions.search:0", "I call search:0"), "bad_call"),
    "Hermes": (
        GOOD.replace("functions.search:0<|tool_call_argument_begin|>", '{"name": "search", "arguments": '),
        "missing_name",
    ),
    "no argument mark": (GOOD.replace("<|tool_call_argument_begin|>", ""), "bad_call"),
    "no end of call": (GOOD.replace("<|tool_call_end|>", ""), "unterminated"),
    "no end of section": (GOOD.removesuffix(END), "unterminated"),
    "no section": (ONE, "bad_call"),
    "no begin": (ONE + END, "bad_call"),
    "empty section": (BEGIN + END, "bad_call"),
    "text in the section": (BEGIN + "search" + END, "bad_call"),
    "only ends": (END, "stray_tag"),
    "misspelt": (GOOD.replace("<|", "<").replace("|>", ">"), "wrong_tag"),
    "id as text": ("functions.search:0 Vell", "wrong_tag"),
    "inside a broken string": (GOOD.replace("Vell", INNER + "\n"), "bad_json"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize(("before", "after"), [("", ""), ("I call.\n", "\nDone."), (GOOD, ""), ("", "\n" + GOOD)])
def test_no_malformed_call_is_lost_run_or_taken_for_an_answer(kimi, read, kinds, case, before, after):
    text, kind = MALFORMED[case]
    parsed = read(kimi, before + text + after + STOP)
    assert parsed.answer is None and parsed.failures
    assert parsed.calls == (CALL,) * (before + after).count(GOOD)
    if not before and not after:
        assert kinds(parsed)[0] == kind


def test_nothing_thought_is_run(kimi, read, kinds):
    assert kinds(read(kimi, f"<think>maybe {GOOD}</think>42")) == ["in_thinking"]
    assert kinds(read(kimi, f"maybe {GOOD}</think>")) == ["in_thinking"]
    assert kinds(read(kimi, f"<think>{GOOD}")) == ["unclosed_thinking", "in_thinking"]
    assert read(kimi, f"<think>so {GOOD}</think>{GOOD}").calls == (CALL,)


@pytest.mark.parametrize("name", ["", "functions.a", "a b", "a:0<|im_end|>"])
def test_a_name_that_an_id_cannot_hold_is_refused(kimi, name):
    with pytest.raises(RlfError, match="kimi_k2 cannot write a call"):
        kimi.write_call(ToolCall(name, {}))


PIECES = [
    *(
        BEGIN,
        END,
        "<|tool_call_begin|>",
        "<|tool_call_end|>",
        "<|tool_call_argument_begin|>",
        "functions.a:0",
        "{",
        "}",
    ),
    *('"', "'", "<think>", "</think>", "\n", "é", ONE, GOOD, STOP, "42"),
]


@given(text=st.lists(st.sampled_from(PIECES), max_size=14).map("".join), truncated=st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_soup_of_marks_has_a_typed_reading(kimi, read, text, truncated):
    parsed = read(kimi, text, truncated)
    assert (parsed.answer is None) == bool(parsed.observed)
    if parsed.answer is not None:
        assert "<|tool_call" not in parsed.answer and not truncated
    assert len(parsed.calls) <= text.count("<|tool_call_begin|>")
    results = ["a"] * len(parsed.observed)
    if results:
        assert kimi.observation(results, closed=True, turn=text)


def test_hostile_turns_are_read_in_linear_time(kimi, assert_linear):
    half = "<|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>"
    assert_linear(kimi, [BEGIN, END, half, BEGIN + half + "{'", BEGIN + half + '{"', ONE, GOOD, "<think>", "</think>"])
