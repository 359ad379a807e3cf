"""DeepSeek's calls against its templates, well-formed ones as vLLM reads them, and a corpus of malformed ones.

The template of V3.1 is written after the published one. That of V3 opens the section of calls and that of results only
once in a conversation, so that its second tool turn cannot be what a model was taught: one tool turn is compared.

Where vLLM 0.29.0 (`deepseek_v3`, `deepseek_v31`) reads otherwise: arguments that are no JSON go on to the tool as text,
a closing token inside a string ends the call (V3.1), a line break in the arguments loses the call without a word, and a
call inside thinking, without a section's end or with anything around it is run.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.chat import FORMATS, detect_format
from rlf.core import RlfError
from rlf.types import Message, ToolCall, ToolDescription

STOP = "<｜end▁of▁sentence｜>"
CALL = ToolCall("search", {"query": "Vell"})
OTHER = ToolCall("now", {})
B, E, CB, CE, SEP = (f"<｜tool▁{mark}｜>" for mark in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep"))
BARE = f'{CB}search{SEP}{{"query": "Vell"}}{CE}'
FENCED = f'{CB}function{SEP}search\n```json\n{{"query": "Vell"}}\n```{CE}'
GOOD = f"{B}{BARE}{E}"
TOOLS = (
    ToolDescription("search", "Find a passage.", {"type": "object"}),
    ToolDescription("now", "", {"type": "object"}),
)


@pytest.fixture(scope="module")
def chat(make_format):
    return make_format("deepseek")


@pytest.fixture(scope="module")
def v3(make_format, trl_template):
    """After a result: the template opens thinking after questions alone."""
    chat = make_format("deepseek", trl_template("deepseekv3_training"))
    return chat.after(chat.observation(["a"], closed=True))


def body(chat, call):
    return chat.write_call(call).removeprefix(B).removesuffix(E)


def functions(calls):
    return [{"type": "function", "function": {"name": c.name, "arguments": dict(c.arguments)}} for c in calls]


def test_a_trajectory_is_what_the_template_of_v31_renders(chat, assert_is_the_templates):
    first = [ToolCall("search", {"query": f"Vell's {CE}\nriver é", "n": [1, None]})]
    turns = []
    for said, calls, results in [("", first, [f"It is {STOP}"]), ("And.", [CALL, OTHER], ["<｜User｜>", ""])]:
        text = said + B + "".join(body(chat, call) for call in calls) + E + STOP
        turns.append((text, {"content": said, "tool_calls": functions(calls)}, [{"content": r} for r in results]))
        assert list(chat.parse(text, truncated=False).items) == calls
    assert_is_the_templates(chat, (), turns)


def test_a_tool_turn_and_the_answer_are_what_v3s_own_template_renders(v3, assert_is_the_templates):
    calls = [ToolCall("search", {"query": f"Vell's {CE}\nriver é", "n": [1, None]}), OTHER]
    text = B + "\n".join(body(v3, call) for call in calls) + E + STOP
    message = {"content": None, "tool_calls": functions(calls)}
    conversation = [
        {"role": "user", "content": "How many?"},
        {"role": "assistant", **message},
        {"role": "tool", "content": "a"},
        {"role": "tool", "content": "<｜User｜>"},
        {"role": "assistant", "content": "42."},
    ]
    prompt = v3.decode(v3.prompt([Message("user", "How many?")], ())).removesuffix("<think>\n")
    shown = prompt + text + v3.decode(v3.observation(["a", "<｜User｜>"], closed=True)) + "42." + STOP
    assert shown == v3.tokenizer.apply_chat_template(conversation, tokenize=False)
    assert list(v3.parse("Hm.\n</think>\n\n" + text, truncated=False).items) == calls
    assert v3.parse("42." + STOP, truncated=False).answer == "42."


def test_tools_are_reported_where_the_template_says_nothing_of_them(chat, v3):
    for each in (chat, v3):
        for messages in ([Message("user", "a")], [Message("system", "Be brief."), Message("user", "a")]):
            shown = each.decode(each.prompt(messages, TOOLS))
            assert "### search\nDescription: Find a passage." in shown and B in shown and "### now" in shown
            assert shown.startswith("Be brief.\n\n## Tools") or messages[0].role == "user"


@pytest.mark.parametrize("name", ["deepseekv3", "deepseekv3_training", "deepseek_r1_distill"])
def test_a_real_template_is_detected_and_no_other_format_takes_it(make_format, trl_template, name):
    real = make_format("deepseek", trl_template(name))
    assert detect_format(real.tokenizer)[0] == "deepseek"
    assert real.write_call(CALL) == B + FENCED + E
    with pytest.raises(RlfError, match="contradicts the model's chat template"):
        FORMATS.get("hermes")(real.tokenizer)


@pytest.mark.parametrize("name", ["llama3_1", "qwen3", "qwen3_6", "glm4moe", "gptoss"])
def test_another_familys_template_is_refused(make_format, trl_template, name):
    with pytest.raises(RlfError, match="deepseek contradicts the model's chat template"):
        make_format("deepseek", trl_template(name))


def bare(name, arguments):
    return f"{CB}{name}{SEP}{arguments}{CE}"


def fenced(name, arguments):
    return f"{CB}function{SEP}{name}\n```json\n{arguments}\n```{CE}"


# What stands before the section, the calls of it, and the calls that vLLM reads in it too, in both generations.
AGREED = [
    ("", [("search", '{"query": "Vell"}')], [CALL]),
    ("I look.", [("search", '{"query": "Vell"}')], [CALL]),
    ("", [("search", '{"query": "Vell"}'), ("now", "{}")], [CALL, OTHER]),
    ("", [("search", '{"query":"Vell"}')], [CALL]),
    ("", [("search", '{"query": "a}``` <b>", "c": {"d": [1, null]}}')],
     [ToolCall("search", {"query": "a}``` <b>", "c": {"d": [1, None]}})]),
    ("", [("search", '{"query": "\\u4e2d é"}')], [ToolCall("search", {"query": "中 é"})]),
]  # fmt: skip


@pytest.mark.parametrize(("before", "calls", "expected"), AGREED)
@pytest.mark.parametrize("end", [E, ""])
def test_well_formed_calls_are_read_as_vllm_reads_them(chat, v3, before, calls, expected, end):
    for each, write, between in ((chat, bare, ""), (v3, fenced, "\n")):
        text = before + B + between.join(write(*call) for call in calls) + end + STOP
        assert list(each.parse(text, truncated=False).items) == expected


MALFORMED = {
    "single quotes": (GOOD.replace('"', "'"), "bad_json"),
    "trailing comma": (GOOD.replace('"}', '",}'), "bad_json"),
    "missing brace": (GOOD.replace("}", ""), "bad_json"),
    "extra brace": (GOOD.replace("}", "}}"), "bad_json"),
    "raw newline": (GOOD.replace("Vell", "Ve\nll"), "bad_json"),
    "NaN": (GOOD.replace('"Vell"', "NaN"), "bad_json"),
    "too deep": (GOOD.replace('"Vell"', "[" * 99 + "]" * 99), "bad_json"),
    "text after": (GOOD.replace(CE, " done" + CE), "bad_json"),
    "a list": (GOOD.replace('{"query": "Vell"}', '["Vell"]'), "bad_arguments"),
    "no arguments": (GOOD.replace('{"query": "Vell"}', ""), "bad_call"),
    "a word": (GOOD.replace('{"query": "Vell"}', "Vell"), "bad_call"),
    "fenced": (f"{B}{FENCED}{E}", "bad_call"),
    "fenced JSON": (GOOD.replace("{", "```json\n{").replace("}", "}\n```"), "bad_call"),
    "no separator": (GOOD.replace(SEP, ""), "bad_call"),
    "no name": (GOOD.replace("search", ""), "missing_name"),
    "hermes inside": (f'{B}{CB}{{"name": "search", "arguments": {{}}}}{CE}{E}', "bad_call"),
    "no end of call": (GOOD.replace(CE, ""), "unterminated"),
    "empty section": (B + E, "bad_call"),
    "empty call": (f"{B}{CB}{CE}{E}", "bad_call"),
    "text in the section": (f"{B}search{E}", "bad_call"),
    "no section": (BARE, "bad_call"),
    "no beginning of the section": (BARE + E, "bad_call"),
    "ends alone": (CE + E, "stray_tag"),
    "ASCII": (GOOD.replace("｜", "|").replace("▁", "_"), "wrong_tag"),
    "hermes": ('<tool_call>{"name": "search", "arguments": {"query": "Vell"}}</tool_call>', "wrong_tag"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize(("before", "after"), [("", ""), ("I call.\n", "\nDone."), (GOOD, ""), ("", "\n" + GOOD)])
def test_no_malformed_call_is_lost_run_or_taken_for_an_answer(chat, read, kinds, case, before, after):
    text, kind = MALFORMED[case]
    parsed = read(chat, before + text + after + STOP)
    assert parsed.answer is None and parsed.failures
    assert parsed.calls == (CALL,) * (before + after).count(GOOD)
    if not before and not after:
        assert kinds(parsed)[0] == kind


def test_a_good_call_beside_a_bad_one_runs(chat, v3, kinds):
    bad = BARE.replace('"Vell"', "")
    assert kinds(chat.parse(f"{B}{BARE}{bad}{BARE}{E}", truncated=False)) == ["search", "bad_json", "search"]
    assert kinds(chat.parse(f"{B}{BARE} then {BARE}{E}", truncated=False))[:2] == ["unterminated", "search"]
    assert kinds(v3.parse(f"{B}{FENCED}\n{BARE}\n{FENCED}{E}", truncated=False)) == ["search", "bad_call", "search"]


def test_nothing_thought_is_run(chat, read, kinds):
    assert kinds(read(chat, f"<think>maybe {GOOD}</think>42")) == ["in_thinking"]
    assert kinds(read(chat, f"maybe {GOOD}</think>")) == ["in_thinking"]
    assert kinds(read(chat, f"<think>{GOOD}")) == ["unclosed_thinking", "in_thinking"]
    assert read(chat, f"<think>so {GOOD}</think>\n{GOOD}").calls == (CALL,)


@pytest.mark.parametrize("tag", [B, E, CB, CE, SEP, "</think>", "<think>", STOP, GOOD, "\n```", "```"])
def test_a_token_inside_a_string_is_data(chat, v3, tag):
    call = ToolCall("search", {"query": f"a {tag} b"})
    for each in (chat, v3):
        assert each.parse(each.write_call(call) + STOP, truncated=False).items == (call,)


def test_thinking_is_open_after_questions_alone(v3, kinds):
    asked = v3.after(v3.prompt([Message("user", "a")], ()))
    assert asked.begins_thinking and not v3.begins_thinking
    call = v3.write_call(CALL)
    assert kinds(asked.parse(f"maybe {call}", truncated=False)) == ["unclosed_thinking", "in_thinking"]
    assert asked.parse(f"so\n</think>\n\n{call}", truncated=False).calls == (CALL,)
    assert v3.parse(call, truncated=False).calls == (CALL,)
    hostile = v3.after(v3.observation(["<｜Assistant｜><think>\n"], closed=True))
    assert not hostile.begins_thinking


soup = st.lists(
    st.sampled_from([B, E, CB, CE, SEP, "search", '{"query": "Vell"}', "{", "}", '"', BARE, FENCED, GOOD, "<think>",
                     "</think>", "\n", " ", "42", STOP, "é", "'"]),
    max_size=16,
).map("".join)  # fmt: skip


@given(text=soup, truncated=st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_soup_of_tokens_has_a_typed_reading(chat, v3, read, text, truncated):
    for each in (chat, v3):
        parsed = read(each, text, truncated)
        assert (parsed.answer is None) == bool(parsed.observed)
        if parsed.answer is not None:
            assert "<｜tool▁call" not in parsed.answer and not truncated
        assert len(parsed.calls) <= text.count(CB)


def test_hostile_turns_are_read_in_linear_time(chat, assert_linear):
    assert_linear(
        chat, [B, E, CB, CE, B + CB, f"{B}{CB}a{SEP}", f"{B}{CB}a{SEP}{{'", f"{CB}a{SEP}{{", "<think>", "</think>"]
    )


def test_the_fenced_form_can_be_chosen_whatever_the_template_writes(tools, make_format):
    for name in ("deepseek", "deepseek_fenced"):
        chat = make_format(name)
        assert "```json" not in chat.tokenizer.chat_template
        text = chat.write_call(CALL)
        assert ("\n```json\n" in text) == (name == "deepseek_fenced")
        assert chat.parse(text, truncated=False).items == (CALL,)
        shown = chat.decode(chat.prompt([Message("user", "a")], tools))
        assert ("```json" in shown) == (name == "deepseek_fenced") and "search" in shown


def test_the_other_form_is_a_failure(make_format):
    bare, fenced = make_format("deepseek"), make_format("deepseek_fenced")
    for reader, writer in ((bare, fenced), (fenced, bare)):
        parsed = reader.parse(writer.write_call(CALL), truncated=False)
        assert parsed.failures and not parsed.calls and parsed.answer is None
