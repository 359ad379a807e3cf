"""A call that is shown and not made is not run: in a code fence, a comment, or thinking in whatever tag."""

import pytest

from rlf.chat import FORMATS
from rlf.chat.repair import repaired, stand_in
from rlf.core import RlfError
from rlf.types import ToolCall, ToolDescription

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = ToolDescription("search", "Find a passage.", SCHEMA)
CALL = ToolCall("search", {"query": "Vell"})
TAGGED = ("hermes", "glm4", "qwen3_coder", "mistral", "deepseek", "deepseek_fenced", "kimi_k2", "pythonic", "search_r1")
NAMED = [name for name in FORMATS.names() if FORMATS.get(name).thinks_in_tags]
PLACES = {
    "a fence": "For example:\n```json\n{}\n```\nThat is all.",
    "a fence of another language": "See:\n~~~~text\nx\n{}\n~~~~\n",
    "a fence that is not closed": "See:\n```\n{}",
    "a fence in a sentence": "I call ```xml\n{}\n```",
    "a comment": "<!-- {} -->\nDone.",
    "a comment over lines": "<!--\nnot now:\n{}\n-->\n",
    "a line comment": "Well.\n// {}",
    "a quotation": "You said:\n> {}",
    "an unnamed tag of thinking": "<thinking>\nI could write\n{}\n</thinking>\nIt is 42.",
    "thinking in capitals": "<Thought>{}</Thought>",
    "open thinking": "<reasoning>so\n{}",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", TAGGED)
def test_a_call_that_is_shown_is_not_run_and_is_no_answer(name, place):
    chat = stand_in(name, [SEARCH])
    parsed = chat.parse(PLACES[place].format(chat.write_call(CALL)), truncated=False)
    assert not parsed.calls and parsed.answer is None
    assert {failure.kind for failure in parsed.failures} <= {"bad_call", "bad_json", "wrong_tag", "unterminated"}


WORDS = {
    "a fence": "code marks",
    "a comment over lines": "a comment",
    "a line comment": "a comment or quotation",
    "thinking in capitals": "<thought>",
}


@pytest.mark.parametrize("place", WORDS)
def test_a_shown_call_is_answered_with_what_it_stands_in(place):
    chat = stand_in("hermes", [SEARCH])
    parsed = chat.parse(PLACES[place].format(chat.write_call(CALL)), truncated=False)
    assert f"The call stands in {WORDS[place]} and was not run." in parsed.failures[0].message


FREE = [
    "I looked at this:\n```python\nx = 1\n```\nNow I search.\n{}",
    "Use ```x``` so.\n{}",
    "<!-- done -->\n{}",
    "<thinking>hm</thinking>\n{}",
    "# Plan\n{}",
    "`a` and `b`:\n{}",
    "````\n```\n````\n{}",
    "A list:\n  ~~~\n  x\n~~~\n{}",
    "<think>```</think>\n{}",
]


@pytest.mark.parametrize("text", FREE)
@pytest.mark.parametrize("name", TAGGED)
def test_a_call_beside_a_fence_a_comment_or_thinking_is_run(name, text):
    chat = stand_in(name, [SEARCH])
    assert chat.parse(text.format(chat.write_call(CALL)), truncated=False).items == (CALL,)


def test_a_pythonic_example_in_a_fence_is_not_run_and_the_call_after_it_is():
    chat = stand_in("pythonic", [SEARCH])
    example = '```python\n[search(query="x")]\n```'
    parsed = chat.parse(f'Like this:\n{example}\n[search(query="Vell")]', truncated=False)
    assert parsed.calls == (CALL,)
    assert [(failure.kind, failure.raw) for failure in parsed.failures] == [("bad_call", '[search(query="x")]')]
    assert "code" in parsed.failures[0].message


def test_a_fence_around_the_whole_turn_is_repaired_and_one_around_an_example_is_not():
    chat = stand_in("hermes", [SEARCH])
    written = f"```json\n{chat.write_call(CALL)}\n```"
    for before, calls in (("", (CALL,)), ("<think>so</think>\n", (CALL,)), ("For example:\n", ())):
        text = f"{before}{written}<|im_end|>"
        after, repairs = repaired(chat, text, chat.parse(text, truncated=False), truncated=False)
        assert after.calls == calls
        assert [repair.kind for repair in repairs] == ["code_fence"] * len(calls)


@pytest.mark.parametrize("name", NAMED)
def test_a_spec_can_name_the_tag_of_thinking(name):
    chat = stand_in(name, [SEARCH])
    chat.name_thinking("reasoning-trace")
    thought = f"<reasoning-trace>I could write\n{chat.write_call(CALL)}\n</reasoning-trace>\n"
    for after, items in ((chat.write_call(CALL), (CALL,)), (chat.write_answer("It is 42."), ())):
        parsed = chat.parse(thought + after, truncated=False)
        assert parsed.items[-1:] == items or parsed.answer == "It is 42."
        assert "I could write" in parsed.thinking and "in_thinking" in [each.kind for each in parsed.failures]
    still = chat.parse(f"<think>so</think>\n{chat.write_answer('b')}", truncated=False)
    assert (still.thinking, still.answer) == ("so", "b")


@pytest.mark.parametrize("name", NAMED)
def test_a_call_before_named_thinking_is_run(name):
    chat = stand_in(name, [SEARCH])
    chat.name_thinking("thinking")
    parsed = chat.parse(f"{chat.write_call(CALL)}\n<thinking>so</thinking>\n", truncated=False)
    assert (parsed.calls, parsed.thinking) == ((CALL,), "so")


@pytest.mark.parametrize("name", NAMED)
def test_named_thinking_that_never_ends_runs_nothing(name):
    chat = stand_in(name, [SEARCH])
    chat.name_thinking("thinking")
    parsed = chat.parse(f"<thinking>so\n{chat.write_call(CALL)}\n", truncated=False)
    assert not parsed.calls and parsed.answer is None
    assert "</thinking>" in next(each.message for each in parsed.failures if each.kind == "unclosed_thinking")
    ended = chat.parse(f"so\n{chat.write_call(CALL)}\n</thinking>\n{chat.write_answer('b')}", truncated=False)
    assert (ended.calls, ended.answer) == ((), "b")


def test_a_generation_prompt_that_opens_the_named_tag_begins_thinking(make_format):
    chat = make_format("hermes", make_format("hermes").tokenizer.chat_template.replace("<think>", "<thinking>"))
    template = chat.tokenizer.chat_template + "{%- if add_generation_prompt %}{{- '<thinking>\\n' }}{%- endif %}"
    chat = make_format("hermes", template)
    assert not chat.begins_thinking
    chat.name_thinking("thinking")
    assert chat.begins_thinking
    parsed = chat.parse(f"so\n{chat.write_call(CALL)}</thinking>\n\n{chat.write_call(CALL)}", truncated=False)
    assert parsed.calls == (CALL,)


def test_a_format_that_thinks_on_a_channel_takes_no_tag():
    with pytest.raises(RlfError, match="thinking_tag"):
        stand_in("gpt_oss", [SEARCH]).name_thinking("thinking")


def test_the_end_of_a_fence_that_a_failed_call_opened_opens_none():
    chat = stand_in("hermes", [SEARCH])
    body = '{"name": "note", "arguments": {"text": "it\'s a \\"</tool_call>\\" tag"}}'
    failed = f"<tool_call>\n```json\n{body}\n```\n</tool_call>"
    parsed = chat.parse(f"{failed}\n{chat.write_call(CALL)}", truncated=False)
    assert parsed.calls == (CALL,) and parsed.failures
