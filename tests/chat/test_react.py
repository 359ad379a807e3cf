"""ReAct's labels: one text from prompt to answer, results that open no line of the format, typed failures.

vLLM has no parser of this format. As in LangChain's ReAct, an answer beside an action is a fault.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.apps.families.plain import neutral
from rlf.apps.families.react import RESULT_LABELS
from rlf.chat import FORMATS
from rlf.core import RlfError
from rlf.types import Message, ToolCall

GOOD = 'Action: search\nAction Input: {"query": "Vell"}'
CALL = ToolCall("search", {"query": "Vell"})
STOP = "<|im_end|>"
LABELS = ["Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:"]


@pytest.fixture(scope="module")
def chat(make_format):
    return make_format("react")


@pytest.fixture(scope="module")
def base(make_tokenizer, chat):
    return FORMATS.get("react")(make_tokenizer(None, eos="<|endoftext|>"), chat.tools)


def test_a_trajectory_is_one_text(base):
    turn = f"Thought: I look.\n{GOOD}\nObservation:"
    text = base.decode(base.prompt([Message("user", "How many?")], base.tools)) + turn
    text += base.decode(base.observation(["900"], closed=False, turn=turn))
    assert text == f"How many?\nThought: I look.\n{GOOD}\nObservation: 900\n"
    assert base.stop_strings == ("\nObservation:",)


def test_a_result_gets_the_label_that_is_missing(chat, base):
    assert base.decode(base.observation(["a", "b"], closed=False)) == " a\nObservation: b\n"
    assert base.decode(base.observation(["a"], closed=True, turn=GOOD + "<|endoftext|>")) == "\nObservation: a\n"
    shown = chat.decode(chat.observation(["a"], closed=True, turn=GOOD + STOP))
    assert shown == "\n<|im_start|>user\nObservation: a<|im_end|>\n<|im_start|>assistant\n"


hostile = st.lists(st.sampled_from([*LABELS, "\n", " ", "\\", "OBSERVATION :", ":", "é", GOOD]) | st.text(max_size=3))


@given(result=hostile.map("".join))
@settings(max_examples=150, deadline=None)
def test_a_result_opens_no_line_of_the_format_and_is_otherwise_intact(base, result):
    shown = base.decode(base.observation([result], closed=False))
    assert shown == f" {neutral(result, RESULT_LABELS)}\n"
    assert RESULT_LABELS.search(shown) is None
    assert shown[1:-1].replace("\\", "") == result.replace("\\", "")
    assert base.parse(shown, truncated=False).calls == ()


READ = {
    GOOD: [CALL],
    f"Thought: I look.\n{GOOD}\nObservation:": [CALL],
    f"I look.\n{GOOD}\n": [CALL],
    "Action: search\nAction Input: Vell": [CALL],
    "Action: search\nAction Input: Vell\nObservation:": [CALL],
    "Action:add\nAction Input:{}": [ToolCall("add", {})],
    'Action: search\nAction Input: {\n  "query": "Vell"\n}\nObservation:': [CALL],
    f"{GOOD}\n{GOOD}\nObservation:": [CALL, CALL],
    'Action: search\nAction Input: {"query": "\\nObservation: \\nFinal Answer: 3"}': [
        ToolCall("search", {"query": "\nObservation: \nFinal Answer: 3"})
    ],
    f"<think>hm</think>{GOOD}": [CALL],
}


@pytest.mark.parametrize("text", READ)
def test_an_action_with_its_input_is_a_call(chat, text):
    assert list(chat.parse(text, truncated=False).items) == READ[text]


def test_thoughts_and_the_answer_are_distinguished(chat):
    parsed = chat.parse(f"Thought: It is\nclear.\nFinal Answer: 42,\nor so.{STOP}", truncated=False)
    assert (parsed.thinking, parsed.answer, parsed.items) == ("It is\nclear.", "42,\nor so.", ())


MALFORMED = {
    "no label": ("It is 42.", ["empty"]),
    "only a thought": ("Thought: It is 42.", ["empty"]),
    "no input": ("Action: search", ["unterminated"]),
    "no input, then the stop": ("Action: search\nObservation:", ["unterminated"]),
    "empty input": ("Action: add\nAction Input:\nObservation:", ["unterminated"]),
    "no action": ('Action Input: {"query": "Vell"}', ["stray_tag"]),
    "original ReAct": ("Action: search[Vell]", ["unterminated"]),
    "a sentence": ('Action: I call search\nAction Input: {"query": "Vell"}', ["bad_call"]),
    "a function": ('Action: search(query="Vell")\nAction Input: {}', ["bad_call"]),
    "single quotes": (GOOD.replace('"', "'"), ["bad_json"]),
    "trailing comma": (GOOD.replace('"}', '",}'), ["bad_json"]),
    "missing brace": (GOOD.removesuffix("}"), ["bad_json"]),
    "fenced": (GOOD.replace("{", "```json\n{") + "\n```", ["bad_json"]),
    "text after": (GOOD + " and so on", ["bad_json"]),
    "a list": ("Action: search\nAction Input: [1]", ["bad_arguments"]),
    "text for a tool that takes none": ("Action: add\nAction Input: Vell", ["bad_json"]),
    "made-up result": ("Observation: 900", ["bad_call"]),
    "mid-line": ("I do Action: search", ["wrong_tag", "empty"]),
    "Hermes": ('<tool_call>{"name": "search"}</tool_call>', ["wrong_tag"]),
    "two answers": ("Final Answer: 41\nFinal Answer: 42", ["two_answers"]),
    "empty answer": ("Final Answer: ", ["empty"]),
    "rehearsed": (f"<think>\n{GOOD}\n</think>", ["in_thinking"]),
    "thinking without end": (f"<think>\n{GOOD}", ["unclosed_thinking", "in_thinking"]),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("before", ["", "<think>hm</think>", "Thought: hm\n", GOOD + "\n"])
def test_no_malformed_turn_is_lost_run_or_taken_for_an_answer(chat, read, kinds, case, before):
    text, expected = MALFORMED[case]
    parsed = read(chat, before + text + STOP)
    assert parsed.answer is None
    assert parsed.calls == (CALL,) * before.count(GOOD)
    if not before:
        assert kinds(parsed)[0] == expected[0]
    assert parsed.failures or (before.startswith(GOOD) and expected == ["empty"])


def test_an_answer_beside_an_action_is_none_and_the_action_runs(chat, read, kinds):
    parsed = read(chat, f"{GOOD}\nFinal Answer: 42")
    assert kinds(parsed) == ["search", "two_answers"] and parsed.answer is None


def test_a_made_up_result_and_what_follows_it_are_not_run(chat, read, kinds):
    parsed = read(chat, f"{GOOD}\nObservation: 900\n{GOOD}\nFinal Answer: 900")
    assert kinds(parsed) == ["search", "bad_call"] and parsed.answer is None


@pytest.mark.parametrize("name", ["", "a b", "a\nb"])
def test_a_name_that_a_line_cannot_hold_is_refused(chat, name):
    with pytest.raises(RlfError, match="react cannot write the call"):
        chat.write_call(ToolCall(name, {}))


PIECES = [*LABELS, "\n", " ", "search", '{"query": "a"}', "{", '"', "<think>", "</think>", GOOD, "\n" + GOOD, STOP, "a"]


@given(text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join), truncated=st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_soup_of_labels_has_a_typed_reading(chat, read, text, truncated):
    parsed = read(chat, text, truncated)
    assert (parsed.answer is None) == bool(parsed.observed)
    assert parsed.answer is None or (not truncated and "Final Answer:" in text)
    assert len(parsed.calls) <= text.count("Action:")


def test_hostile_turns_are_read_in_linear_time(chat, assert_linear):
    assert_linear(
        chat, [*(label + "\n" for label in LABELS), GOOD + "\n", "Action: a\nAction Input: {\n", "\n", "Action: "]
    )
