"""gpt-oss's format against its real template, well-formed calls as vLLM's harmony parser has them, and malformed ones.

Where vLLM 0.29.0 reads otherwise (by its source; it needs OpenAI's own tokenizer to run): it takes a call on any
channel, analysis too, ended by any stop token or none; passes on arguments that are no JSON as they stand; drops a
message to a recipient other than `functions.NAME`; and counts commentary as the answer. Here a call stands on
commentary, ends with `<|call|>` and holds a JSON object, an answer stands on final; anything else is a typed failure.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.chat import detect_format
from rlf.core import RlfError
from rlf.types import ToolCall

CALL = ToolCall("search", {"query": "Vell"})
GOOD = ' to=functions.search<|channel|>commentary json<|message|>{"query": "Vell"}<|call|>'
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"


@pytest.fixture(scope="module")
def gpt_oss(make_format):
    return make_format("gpt_oss")


@pytest.fixture(scope="module")
def real(make_format, trl_template):
    return make_format("gpt_oss", trl_template("gptoss"))


def message(call, thinking):
    return {"content": thinking, "tool_calls": [{"function": {"name": call.name, "arguments": dict(call.arguments)}}]}


def test_a_trajectory_is_what_gpt_osss_own_template_renders(real, tools, assert_is_the_templates):
    second = ToolCall("add", {"a": [1, None], "é": "<|end|>"})
    turns = [
        (THOUGHT + real.write_call(CALL), message(CALL, "Hm."), [{"content": 'It is "<|end|>"\n \t'}]),
        (real.write_call(second), message(second, ""), [{"content": ""}]),
    ]
    assert_is_the_templates(real, tools, turns)
    assert real.parse(turns[0][0], truncated=False).items == (CALL,)
    assert real.parse(turns[1][0], truncated=False).items == (second,)


def test_the_real_template_is_detected_and_anothers_refused(real, make_format, template):
    assert detect_format(real.tokenizer)[0] == "gpt_oss"
    with pytest.raises(RlfError, match="gpt_oss contradicts"):
        make_format("gpt_oss", template)


def test_results_come_from_the_tools_that_were_called(real):
    both = GOOD + "<|start|>assistant" + GOOD.replace("search", "add").replace('"}', '"')
    shown = real.decode(real.observation(["900", "not JSON"], closed=True, turn=both))
    assert shown == (
        '<|start|>functions.search to=assistant<|channel|>commentary<|message|>"900"<|end|>'
        '<|start|>functions.add to=assistant<|channel|>commentary<|message|>"not JSON"<|end|><|start|>assistant'
    )


def test_what_follows_a_turn_that_names_no_tool_is_the_users(real):
    shown = real.decode(real.observation(["No call."], closed=True, turn="42<|return|>"))
    assert shown == "<|start|>user<|message|>No call.<|end|><|start|>assistant"


def test_a_turn_ends_with_a_call_or_a_return(gpt_oss):
    assert gpt_oss.decode(gpt_oss.stop_token_ids) == "<|call|><|return|>"


# Input text and the calls that vLLM's harmony parser reads in it too.
AGREED = {
    GOOD: [CALL],
    THOUGHT + GOOD: [CALL],
    '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "Vell"}<|call|>': [CALL],
    '<|channel|>commentary to=functions.search<|message|>{"query": "Vell"}<|call|>': [CALL],
    f"{THOUGHT}<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{GOOD}": [CALL],
    GOOD.replace('{"query": "Vell"}', "{}"): [ToolCall("search", {})],
    GOOD.replace('"Vell"', '"a \\"b\\" 中", "n": [1, {"x": null}]'): [
        ToolCall("search", {"query": 'a "b" 中', "n": [1, {"x": None}]})
    ],
    f"{GOOD}<|start|>assistant{GOOD}": [CALL, CALL],
}


@pytest.mark.parametrize("text", AGREED)
def test_well_formed_calls_are_read_as_vllm_reads_them(gpt_oss, text):
    assert list(gpt_oss.parse(text, truncated=False).items) == AGREED[text]


def test_thinking_commentary_and_the_answer_are_kept_apart(gpt_oss):
    parsed = gpt_oss.parse(
        f"{THOUGHT}<|channel|>commentary<|message|>Now.<|end|><|start|>assistant{FINAL}42<|return|>", truncated=False
    )
    assert (parsed.thinking, parsed.answer, parsed.items) == ("Hm.", "42", ())


@pytest.mark.parametrize("tag", ["<|call|>", "<|end|>", "<|start|>assistant", "<|return|>", GOOD.replace('"', '\\"')])
def test_a_mark_inside_a_string_is_data(gpt_oss, tag):
    (call,) = gpt_oss.parse(GOOD.replace("Vell", tag), truncated=False).items
    assert call == ToolCall("search", {"query": tag.replace('\\"', '"')})


MALFORMED = {
    "single quotes": (GOOD.replace('"', "'"), "bad_json"),
    "trailing comma": (GOOD.replace('"}', '",}'), "bad_json"),
    "missing brace": (GOOD.replace('"}', '"'), "bad_json"),
    "fenced": (GOOD.replace('{"query": "Vell"}', '```json\n{"query": "Vell"}\n```'), "bad_json"),
    "raw newline": (GOOD.replace("Vell", "Vell\nOrr"), "bad_json"),
    "text after the JSON": (GOOD.replace('"}', '"} and'), "bad_json"),
    "a list": (GOOD.replace('{"query": "Vell"}', "[1]"), "bad_arguments"),
    "a string": (GOOD.replace('{"query": "Vell"}', '"{}"'), "bad_arguments"),
    "nothing": (GOOD.replace('{"query": "Vell"}', ""), "bad_json"),
    "ended by end": (GOOD.replace("<|call|>", "<|end|>"), "unterminated"),
    "ended by return": (GOOD.replace("<|call|>", "<|return|>"), "unterminated"),
    "on analysis": (GOOD.replace("commentary", "analysis"), "bad_call"),
    "on final": (GOOD.replace("commentary", "final"), "bad_call"),
    "another namespace": (GOOD.replace("functions.search", "browser.search"), "missing_name"),
    "no name": (GOOD.replace("functions.search", "functions."), "missing_name"),
    "to the assistant": (GOOD.replace("functions.search", "assistant"), "missing_name"),
    "no channel": (GOOD.replace("<|channel|>commentary json", ""), "wrong_tag"),
    "no message mark": (GOOD.replace("<|message|>", ""), "wrong_tag"),
    "an unknown channel": (GOOD.replace(" to=functions.search", "").replace("commentary", "tools"), "bad_call"),
    "no recipient, no message": ('functions.search {"query": "Vell"}<|call|>', "empty"),
    "no channel at all": ("It is 42.<|return|>", "empty"),
    "Hermes": ('<tool_call>{"name": "search", "arguments": {}}</tool_call><|return|>', "wrong_tag"),
    "Hermes in final": (FINAL + '<tool_call>{"name": "search", "arguments": {}}</tool_call><|return|>', "wrong_tag"),
    "header in final": (f"{FINAL}I call to=functions.search<|return|>", "wrong_tag"),
    "call in final": (FINAL + GOOD, "wrong_tag"),
    "empty final": (f"{FINAL} <|return|>", "empty"),
    "only commentary": ("<|channel|>commentary<|message|>I look.<|end|>", "empty"),
    "two answers": (f"{FINAL}41<|end|><|start|>assistant{FINAL}42<|return|>", "two_answers"),
    "inside a broken string": (GOOD.replace("Vell", GOOD.replace('"', '\\"') + "\n"), "bad_json"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("before", ["", THOUGHT, GOOD + "<|start|>assistant"])
def test_no_malformed_call_is_lost_run_or_taken_for_an_answer(gpt_oss, read, kinds, case, before):
    text, kind = MALFORMED[case]
    parsed = read(gpt_oss, before + text)
    assert parsed.answer is None
    assert parsed.calls == (CALL,) * before.count(GOOD)
    if not before:
        assert kinds(parsed)[0] == kind
    # Beside a call, commentary and an empty final message say nothing that could be lost.
    assert parsed.failures or (before.count(GOOD) and case in ("only commentary", "empty final"))


def test_nothing_thought_is_run(gpt_oss, read, kinds):
    thought = f"<|channel|>analysis<|message|>maybe{GOOD}"
    assert kinds(read(gpt_oss, thought)) == ["unclosed_thinking", "in_thinking"]
    assert kinds(read(gpt_oss, f"{thought}<|end|><|start|>assistant{FINAL}42<|return|>")) == ["in_thinking"]
    unended = f"<|channel|>analysis<|message|>hm<|start|>assistant{GOOD}"
    assert read(gpt_oss, unended).calls == ()


@pytest.mark.parametrize("name", ["", "a b", "a<|end|>"])
def test_a_name_that_a_header_cannot_hold_is_refused(gpt_oss, name):
    with pytest.raises(RlfError, match="gpt_oss cannot write a call"):
        gpt_oss.write_call(ToolCall(name, {}))


PIECES = [
    *("<|start|>assistant", "<|start|>", "<|end|>", "<|call|>", "<|return|>", "<|channel|>", "<|message|>", "analysis"),
    *("commentary", "final", " to=functions.a", "{", "}", '"', "'", "é", " ", GOOD, THOUGHT, FINAL, "42"),
]


@given(text=st.lists(st.sampled_from(PIECES), max_size=14).map("".join), truncated=st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_soup_of_marks_has_a_typed_reading(gpt_oss, read, text, truncated):
    parsed = read(gpt_oss, text, truncated)
    assert (parsed.answer is None) == bool(parsed.observed)
    if parsed.answer is not None:
        assert "to=functions" not in parsed.answer and "<|channel|>" not in parsed.answer and not truncated
    assert len(parsed.calls) <= text.count("<|call|>")
    if parsed.observed:
        assert gpt_oss.observation(["a"] * len(parsed.observed), closed=True, turn=text)


def test_hostile_turns_are_read_in_linear_time(gpt_oss, assert_linear):
    half = " to=functions.a<|channel|>commentary json<|message|>"
    pieces = [
        "<|start|>assistant",
        "<|channel|>",
        half,
        half + "{'",
        half + '{"',
        GOOD,
        THOUGHT,
        FINAL,
        " to=",
        "<|call|>",
    ]
    assert_linear(gpt_oss, pieces)
