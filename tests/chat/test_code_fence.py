"""Fenced code as calls: fences longer than what they hold, typed failures. vLLM has no parser of this format."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.chat import FORMATS
from rlf.core import RlfError
from rlf.types import Message, ToolCall

GOOD = "```python\nprint(1)\n```"
CALL = ToolCall("python", {"code": "print(1)"})
STOP = "<|im_end|>"


@pytest.fixture(scope="module")
def chat(make_format):
    return make_format("code_fence")


def test_a_trajectory_has_the_layout_of_the_models_own_template(chat):
    assert chat.decode(chat.prompt([Message("user", "1+1?")], chat.tools)) == (
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    )
    shown = chat.decode(chat.observation(["1\n", "Mend it."], closed=True, turn=f"{GOOD}\n```python\n```{STOP}"))
    assert shown == ("\n<|im_start|>user\n```output\n1\n\n```\nMend it.<|im_end|>\n<|im_start|>assistant\n")


@given(result=st.text(max_size=20) | st.lists(st.sampled_from(["`", "```", "\n", "python", "a"])).map("".join))
@settings(max_examples=150, deadline=None)
def test_a_result_is_intact_and_cannot_close_its_fence(chat, result):
    shown = chat.decode(chat.observation([result], closed=True, turn=GOOD))
    inside = shown.removeprefix("\n<|im_start|>user\n").removesuffix("<|im_end|>\n<|im_start|>assistant\n")
    fence = inside.partition("output")[0]
    assert inside == f"{fence}output\n{result}\n{fence}" and fence not in result


READ = {
    GOOD: [CALL],
    f"I run it.\n{GOOD}\nDone.": [CALL],
    "```py\nprint(1)\n```": [CALL],
    "````python\nprint(1)\n````": [CALL],
    "``` python\nprint(1)\n``` ": [CALL],
    f"{GOOD}\n{GOOD}": [CALL, CALL],
    "````python\nx = '''\n```\n'''\n````": [ToolCall("python", {"code": "x = '''\n```\n'''"})],
    "```python\n\n  a\n\n```": [ToolCall("python", {"code": "\n  a\n"})],
    f"<think>hm</think>{GOOD}": [CALL],
    "```python\n# </think> <tool_call>\n```": [ToolCall("python", {"code": "# </think> <tool_call>"})],
}


@pytest.mark.parametrize("text", READ)
def test_a_block_of_python_is_a_call(chat, text):
    assert list(chat.parse(text + STOP, truncated=False).items) == READ[text]


@pytest.mark.parametrize("text", ["It is `1`.", "```json\n{}\n```", "See:\n```bash\nls\n```\nDone.", "a ``` b"])
def test_text_without_a_block_of_python_is_the_answer(chat, text):
    assert chat.parse(text + STOP, truncated=False).answer == text


MALFORMED = {
    "not closed": ("```python\nprint(1)", ["unterminated"]),
    "closed by less": ("````python\nprint(1)\n```", ["unterminated"]),
    "closed on the line": ("```python\nprint(1)```", ["unterminated"]),
    "empty": ("```python\n\n```", ["bad_arguments"]),
    "nothing at all": ("```python\n```", ["bad_arguments"]),
    "no language": ("```\nprint(1)\n```", ["bad_call"]),
    "a version": ("```python3\nprint(1)\n```", ["bad_call"]),
    "tool_code": ("```tool_code\nprint(1)\n```", ["bad_call"]),
    "a made-up result": ("```output\n1\n```", ["bad_call"]),
    "on one line": ("```python print(1)```", ["wrong_tag"]),
    "Hermes": ('<tool_call>{"name": "python"}</tool_call>', ["wrong_tag"]),
    "rehearsed": (f"<think>\n{GOOD}</think>", ["in_thinking"]),
    "thinking without end": (f"<think>\n{GOOD}", ["unclosed_thinking", "in_thinking"]),
    "nothing": (" ", ["empty"]),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("before", ["", "<think>hm</think>", GOOD + "\n"])
def test_no_malformed_block_is_lost_run_or_taken_for_an_answer(chat, read, kinds, case, before):
    text, expected = MALFORMED[case]
    parsed = read(chat, before + text + STOP)
    assert parsed.answer is None
    assert parsed.calls == (CALL,) * before.count(GOOD)
    if not before:
        assert kinds(parsed) == expected


def test_another_tools_call_is_refused(chat, tools, tokenizer):
    with pytest.raises(RlfError, match="code_fence cannot write the call 'search'"):
        chat.write_call(ToolCall("search", {"code": "a"}))
    with pytest.raises(RlfError, match="calls one tool"):
        FORMATS.get("code_fence")(tokenizer, tools)


def test_a_base_model_without_a_template_is_refused(make_tokenizer):
    with pytest.raises(RlfError, match="no chat template"):
        FORMATS.get("code_fence")(make_tokenizer(None))


PIECES = ["```", "````", "python", "py", "\n", " ", "a", "<think>", "</think>", GOOD, "output", STOP, "`", "\n```\n"]


@given(text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join), truncated=st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_soup_of_fences_has_a_typed_reading(chat, read, text, truncated):
    parsed = read(chat, text, truncated)
    assert (parsed.answer is None) == bool(parsed.observed)
    assert parsed.answer is None or (not truncated and GOOD not in parsed.answer)


def test_hostile_turns_are_read_in_linear_time(chat, assert_linear):
    assert_linear(chat, ["```python\n", "```\n", "`", GOOD + "\n", "```json\n", "<think>", "```python\n```\n"])
