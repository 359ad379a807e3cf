"""Kimi K3: channels, typed arguments, names with quotes, and results numbered as their calls; see `test_invoke` too."""

import pytest

from rlf.chat.repair import stand_in
from rlf.types import ToolCall

END = "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>"
THINK = ("<|open|>think<|sep|>", "<|close|>think<|sep|><|open|>response<|sep|>")
SEARCH = ToolCall("search", {"query": "Vell"})


def argument(kind, text, key="limit"):
    inside = f'<|open|>argument key="{key}"{kind}<|sep|>{text}<|close|>argument<|sep|>'
    call = f'<|open|>call tool="search" index="1"<|sep|>{inside}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


@pytest.fixture(scope="module")
def kimi():
    return stand_in("kimi_k3")


def test_the_answer_is_what_the_response_says(kimi):
    for thought, text in (("", f"It is 42.{END}"), ("hm", f"{THINK[0]}hm{THINK[1]}It is 42.{END}")):
        parsed = kimi.parse(text, truncated=False)
        assert (parsed.answer, parsed.thinking, parsed.items) == ("It is 42.", thought, ())


def test_a_section_holds_all_calls_with_their_numbers(kimi):
    calls = (SEARCH, ToolCall("now", {}), SEARCH)
    text = kimi.write_calls(calls)
    assert [f'index="{number}"' in text for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert kimi.parse(f"I look.{text}<|close|>message<|sep|><|end_of_msg|>", truncated=False).items == calls


def test_a_call_is_found_after_thinking_and_the_response(kimi):
    turn = f"{THINK[0]}hm{THINK[1]}I look.{kimi.write_call(SEARCH)}"
    place = kimi.find_call(turn)
    assert turn[place:].startswith("<|open|>tools<|sep|>")
    assert kimi.parse(turn[:place], truncated=False).answer == "I look."
    assert kimi.find_call("I look.<|close|>resp") == len("I look.")


def test_a_fence_that_the_response_leaves_open_quotes_no_call(kimi):
    assert kimi.parse(f"```\nI look.{kimi.write_call(SEARCH)}", truncated=False).items == (SEARCH,)


def test_names_are_written_with_entities_and_values_as_they_are(kimi):
    call = ToolCall('a"b', {'say "&amp;"': '&quot; <|close|>argument<|sep|> "'})
    text = kimi.write_call(call)
    assert 'tool="a&quot;b"' in text and 'key="say &quot;&amp;amp;&quot;"' in text
    assert kimi.parse(text, truncated=False).items == (call,)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [("string", " 42\n", " 42\n"), ("number", "42", 42), ("null", "null", None), ("array", '["a"]', ["a"])],
)
def test_a_value_is_read_as_its_type_says(kimi, kind, text, value):
    (call,) = kimi.parse(argument(f' type="{kind}"', text), truncated=False).calls
    assert call.arguments == {"limit": value}


@pytest.mark.parametrize(("kind", "text"), [("", "3"), (' type="date"', "3"), (' type="number"', "three")])
def test_a_value_without_a_type_or_of_no_json_is_refused(kimi, kinds, kind, text):
    assert kinds(kimi.parse(argument(kind, text), truncated=False)) == ["bad_arguments"]


def test_results_are_messages_of_their_tools_in_the_order_of_the_calls(kimi):
    turn = kimi.write_calls([ToolCall("now", {}), SEARCH])
    shown = kimi.decode(kimi.observation(["noon", "900"], closed=True, turn=turn))
    assert 'tool="now" index="1"<|sep|>noon<' in shown and 'tool="search" index="2"<|sep|>900<' in shown


def test_what_follows_a_turn_that_calls_nothing_is_said_by_the_user(kimi):
    said = [
        kimi.observation(["a"], closed=True, turn="<|open|>tools<|sep|>"),
        kimi.user_turn("a", closed=True),
        kimi.user_turn("a", closed=False)[1:],
    ]
    assert [kimi.decode(tokens).startswith('<|open|>message role="user"<|sep|>a<|close|>') for tokens in said] == [
        True
    ] * 3
