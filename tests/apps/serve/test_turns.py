"""What a stream shows of a turn adds up to what the whole turn says, in every chat format and however it is cut."""

from __future__ import annotations

import random
import weakref
from typing import Any

import pytest

from rlf.apps.serve.dialogue import SampledTurn
from rlf.apps.serve.requests import ChatRequest, RecentValues
from rlf.apps.serve.turns import TurnReader
from rlf.chat import FORMATS
from rlf.chat.repair import stand_in
from rlf.core import RlfError
from rlf.types import ToolCall, ToolDescription

SEARCH = ToolDescription(
    "search", "S.", {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
)
SAID = [
    "Tukkes",
    "It is 3 < 4 [see below], and `x` is {a set}.\n\n```python\nprint(1)\n```\nSo: done.",
    "I may search for that, or call search later. Ünï 中文 🙂 ends.",
    "Let me look that up first.",
]


def turns_of(name: str) -> list[tuple[Any, str]]:
    """Turns as the format writes them: answers, thinking, calls, and both."""
    chat = stand_in(name, [SEARCH])
    stop = chat.decode(chat.stop_token_ids[:1])
    opening, closing = chat.thinking_marks
    turns = [chat.write_answer(text) for text in SAID]
    turns.append(f"{opening}Is it <here>? Perhaps [there].{closing}{chat.write_answer(SAID[0])}")
    try:
        call = chat.write_calls([ToolCall("search", {"query": "Where {x}?"})])
    except RlfError:
        call = chat.write_calls([ToolCall("search", {"query": "Where?"})])
    turns += [call, f"{SAID[3]}\n{call}", f"{opening}Hm.{closing}{call}", f"{call[: len(call) // 2]}"]
    return [(chat, turn + stop) for turn in turns]


def read(chat: Any, text: str, ends: list[int], **keys: Any) -> tuple[str, str, list[tuple[str, str]]]:
    """What is shown of a turn that grows to each of the ends, and then is over."""
    reader = TurnReader(chat, calls=True, **keys)
    pieces = [reader.advance(text[:end]) for end in ends]
    last, _ = reader.finish(text, truncated=False)
    pieces.append(last)
    said, thought = "".join(piece.text for piece in pieces), "".join(piece.reasoning for piece in pieces)
    return said, thought, [(call.name, call.arguments) for piece in pieces for call in piece.calls]


@pytest.mark.parametrize("name", FORMATS.names())
def test_the_pieces_of_a_turn_add_up_to_the_whole(name: str) -> None:
    draw = random.Random(0)
    for chat, text in turns_of(name):
        whole = read(chat, text, [])
        cuts = [
            list(range(1, len(text))),
            *(sorted(draw.sample(range(len(text)), min(5, len(text)))) for _ in range(5)),
        ]
        for ends in [list(range(1, len(text))), *cuts]:
            assert read(chat, text, ends) == whole, (text, ends)


def test_prose_is_shown_before_its_turn_is_over_and_a_call_is_not() -> None:
    chat = stand_in("hermes", [SEARCH])
    reader = TurnReader(chat, calls=True)
    assert reader.advance("Let me look that up.").text == "Let me look that up."
    assert reader.advance("Let me look that up.\n<tool_").text == ""
    assert reader.advance('Let me look that up.\n<tool_call>\n{"name": "search", "arg').text == ""
    assert TurnReader(chat, calls=True).advance("<think>\nHm, so").reasoning == "Hm, so"


def test_a_stop_string_ends_the_text_before_it_and_no_part_of_it_is_shown() -> None:
    reader = TurnReader(None, calls=False, stops=["END", "never"])
    assert [reader.advance(text).text for text in ("a E", "a EN", "a ENx", "a ENx END")] == ["a", "", " ENx", ""]
    piece, _ = reader.finish("a ENx END", truncated=False)
    assert (piece.text, reader.text, reader.stop_of("a ENx END")) == (" ", "a ENx ", "END")


def test_the_oldest_conversations_are_forgotten_when_there_is_no_room() -> None:
    memory = RecentValues[SampledTurn](max_size=10)
    for number in range(4):
        memory.put(f"conversation {number}", SampledTurn((number,) * 4, "", ()), 4)
    assert [memory.get(f"conversation {number}") is not None for number in range(4)] == [False, False, True, True]


def test_tools_are_read_once_and_as_many_lists_are_kept_as_fit() -> None:
    """Fifty clients whose descriptions are a megabyte each; the kept ones may be of fifteen at most."""

    def read(name: str, size: int) -> ChatRequest:
        function = {"name": name, "description": "x" * size}
        tools = [{"type": "function", "function": function}]
        return ChatRequest.model_validate({"model": "m", "messages": [{}], "tools": tools})

    assert read("small", 9).offered is read("small", 9).offered
    kept = [weakref.ref(read(f"tool_{number}", 1_000_000).tools[0]) for number in range(50)]
    assert 0 < sum(tools() is not None for tools in kept) <= 15
    assert read("small", 9).offered == (ToolDescription("small", "x" * 9, {}),)
