"""Search-R1's tags: one text from prompt to answer, results that cannot close their block, typed failures.

vLLM has no parser of this format. The layout of prompts and results follows Search-R1's own generation loop, but
results and failures are kept as they are, and a turn is never cut after it was sampled.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.apps.families.plain import neutral
from rlf.apps.families.search_r1 import RESULT_TAGS
from rlf.chat import FORMATS
from rlf.core import RlfError
from rlf.types import Message, ToolCall, ToolDescription

GOOD = "<search> Vell </search>"
CALL = ToolCall("search", {"query": "Vell"})
STOP = "<|im_end|>"
TAGS = [f"<{slash}{name}>" for name in ("search", "answer", "information", "think") for slash in ("", "/")]


@pytest.fixture(scope="module")
def chat(make_format):
    return make_format("search_r1")


@pytest.fixture(scope="module")
def base(make_tokenizer, chat):
    return FORMATS.get("search_r1")(make_tokenizer(None, eos="<|endoftext|>"), chat.tools)


def test_a_base_models_prompt_is_plain_text(base):
    messages = [Message("system", "Search with <search>."), Message("user", "How many live in Vell?")]
    assert base.decode(base.prompt(messages, base.tools)) == "Search with <search>.\n\nHow many live in Vell?\n"


def test_a_chat_models_prompt_is_its_template_and_describes_no_tools(chat):
    shown = chat.decode(chat.prompt([Message("user", "How many?")], chat.tools))
    assert shown == "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("which", ["chat", "base"])
def test_a_result_goes_on_in_the_same_text(which, request):
    made = request.getfixturevalue(which)
    assert made.stop_strings == ("</search>", "</answer>")
    two = made.observation(["a", " b\n"], closed=False, turn=GOOD + GOOD)
    assert made.decode(two) == "\n\n<information>a</information>\n\n<information> b\n</information>\n\n"
    failed = made.observation(["Write a query.", "a"], closed=False, turn=f"<search></search>{GOOD}")
    assert made.decode(failed) == "\n\nWrite a query.\n\n<information>a</information>\n\n"


def test_what_follows_a_closed_turn_is_the_users(chat, base):
    shown = chat.decode(chat.observation(["Write a tag."], closed=True, turn="42" + STOP))
    assert shown == "\n<|im_start|>user\nWrite a tag.<|im_end|>\n<|im_start|>assistant\n"
    assert (
        base.decode(base.observation(["Write a tag."], closed=True, turn="42<|endoftext|>")) == "\n\nWrite a tag.\n\n"
    )


hostile = st.lists(
    st.sampled_from([*TAGS, "<", ">", "/", "\\", "information", "<INFORMATION>", "é"]) | st.text(max_size=3)
)


@given(result=hostile.map("".join))
@settings(max_examples=150, deadline=None)
def test_a_result_holds_none_of_the_formats_tags_and_is_otherwise_intact(chat, result):
    shown = chat.decode(chat.observation([result], closed=False, turn=GOOD))
    inside = shown.removeprefix("\n\n<information>").removesuffix("</information>\n\n")
    assert not any(tag in inside.lower() for tag in TAGS)
    assert inside == neutral(result, RESULT_TAGS) and len(inside) - len(result) == len(RESULT_TAGS.findall(result))
    assert inside.replace("\\", "") == result.replace("\\", "")
    assert chat.parse(inside, truncated=False).calls == ()


def test_thinking_searches_and_answers_are_distinguished(chat):
    parsed = chat.parse(f"<think>Where?</think> I look. {GOOD}", truncated=False)
    assert (parsed.thinking, parsed.items, parsed.answer) == ("Where?", (CALL,), None)
    parsed = chat.parse(f"<think>So.</think><answer> 900 </answer>{STOP}", truncated=False)
    assert (parsed.items, parsed.answer) == ((), "900")
    assert chat.parse(GOOD + GOOD, truncated=False).items == (CALL, CALL)


MALFORMED = {
    "no tag": ("It is 42.", ["empty"]),
    "no close tag": ("<search>Vell", ["unterminated"]),
    "no close tag of the answer": ("<answer>42", ["unterminated"]),
    "no open tag": ("Vell</search>", ["stray_tag"]),
    "closed by another": ("<search>Vell</answer>", ["unterminated", "stray_tag"]),
    "empty query": ("<search> </search>", ["bad_arguments"]),
    "empty answer": ("<answer></answer>", ["empty"]),
    "nested": ("<search>a <answer>42</answer></search>", ["unterminated", "stray_tag"]),
    "two answers": ("<answer>41</answer><answer>42</answer>", ["two_answers"]),
    "hallucinated result": ("<information>900</information>", ["bad_call"]),
    "capitals": ("<SEARCH>Vell</SEARCH>", ["wrong_tag"]),
    "attribute": ('<search query="Vell">', ["wrong_tag"]),
    "spaces": ("< search >Vell</ search >", ["wrong_tag"]),
    "another family": ('<tool_call>{"name": "search"}</tool_call>', ["wrong_tag"]),
    "unclosed thinking": (f"<think>hm {GOOD}", ["unclosed_thinking", "in_thinking"]),
    "rehearsed": (f"<think>hm {GOOD}</think>", ["in_thinking"]),
    "nothing": ("", ["empty"]),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("before", ["", "<think>hm</think>", GOOD])
def test_no_malformed_turn_is_lost_run_or_taken_for_an_answer(chat, read, kinds, case, before):
    text, expected = MALFORMED[case]
    parsed = read(chat, before + text + STOP)
    assert parsed.answer is None or case == "nested"
    assert parsed.calls == (CALL,) * before.count(GOOD)
    if not before:
        assert kinds(parsed) == expected
    assert parsed.failures or before == GOOD


def test_an_answer_beside_a_search_is_none_and_the_search_runs(chat, read, kinds):
    parsed = read(chat, f"{GOOD}<answer>42</answer>")
    assert kinds(parsed) == ["search", "two_answers"] and parsed.answer is None


def tool(name, properties, required):
    return ToolDescription(name, "", {"type": "object", "properties": properties, "required": required})


@pytest.mark.parametrize(
    "tools",
    [
        (tool("a", {"q": {"type": "integer"}}, ["q"]),),
        (tool("a", {"q": {"type": "string"}}, []),),
        (tool("a", {"q": {"type": "string"}}, ["q"]), tool("b", {}, [])),
        (tool("a", {"q": {"type": "string"}, "r": {"type": "string"}}, ["q", "r"]),),
    ],
)
def test_a_tool_that_takes_no_single_text_is_refused(tokenizer, tools):
    with pytest.raises(RlfError, match="calls one tool with one required argument, a string; got the tools a"):
        FORMATS.get("search_r1")(tokenizer, tools)


def test_the_query_goes_to_the_declared_tool(tokenizer):
    made = FORMATS.get("search_r1")(tokenizer, (tool("retrieve", {"text": {"type": "string"}, "k": {}}, ["text"]),))
    assert made.parse(GOOD, truncated=False).items == (ToolCall("retrieve", {"text": "Vell"}),)


@pytest.mark.parametrize(
    "arguments", [{"query": "a</search>"}, {"query": " a"}, {"query": 3}, {}, {"query": "a", "k": 1}]
)
def test_a_call_that_the_tags_cannot_hold_is_refused(chat, arguments):
    with pytest.raises(RlfError, match="search_r1 cannot write the call"):
        chat.write_call(ToolCall("search", arguments))


@given(text=st.lists(st.sampled_from([*TAGS, "a", " ", GOOD, STOP, "<"]), max_size=12).map("".join), cut=st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_soup_of_tags_has_a_typed_reading(chat, read, text, cut):
    parsed = read(chat, text, cut)
    assert (parsed.answer is None) == bool(parsed.observed)
    assert parsed.answer is None or (not cut and text.count("<answer>") >= 1)
    assert len(parsed.calls) <= text.count("<search>")


def test_hostile_turns_are_read_in_linear_time(chat, assert_linear):
    assert_linear(chat, [*TAGS, "<search>a", "<", "</search><search>", "< "])
