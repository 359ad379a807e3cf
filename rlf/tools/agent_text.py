"""Calls that an agent's model writes as text, for servers that read none: the chat formats read them.

A server without a tool parser hands `<tool_call>{...}</tool_call>` on as the message's text. Which family wrote it is
not known, so every format tries; the one that reads calls of known tools without a fault is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from rlf.core.errors import RlfError
from rlf.endpoints import Completion
from rlf.types import FailureClass, ParseFailure, ToolCall, ToolDescription

if TYPE_CHECKING:
    from rlf.chat.format import ChatFormat
    from rlf.chat.marks import Parsed

_VAGUE: Final = (FailureClass.WRONG_TAG, FailureClass.BAD_CALL, FailureClass.EMPTY)
"""Failures that a format reports for another's call."""
AUTO: Final = "auto"
NONE: Final = "none"


class TextTurn(NamedTuple):
    """The calls and failures in a text that looks like a call."""

    calls: tuple[ToolCall, ...]
    failures: tuple[ParseFailure, ...]


class TextCalls:
    """Reads the turns of one agent."""

    def __init__(self, form: str, tools: Sequence[ToolDescription]) -> None:
        """Takes a format's name, or `auto`, and the agent's tools."""
        self._form, self._tools = form, tuple(tools)
        self._names = {tool.name for tool in tools}
        self._formats: list[ChatFormat] | None = None

    def looks_like_calls(self, completion: Completion) -> bool:
        """Whether the text may hold a call."""
        if self._form == NONE or completion.calls:
            return False
        from rlf.chat.format import find_any_call

        return self._form != AUTO or find_any_call(completion.text, self._tools) is not None

    def read(self, completion: Completion) -> TextTurn:
        """The calls, or why there are none; neither for a text that is an answer. Loads transformers at first."""
        parsed = [format_.parse(completion.text, truncated=completion.is_truncated) for format_ in self._load_formats()]
        best = max(parsed, key=self._rank_parse)
        if self._form != AUTO:
            return TextTurn(best.calls, () if best.calls or best.answer is not None else best.failures)
        if self._num_known(best):
            return TextTurn(best.calls, ())
        if any(found.answer is not None for found in parsed) and not self._names_a_tool(completion.text):
            return TextTurn((), ())
        return TextTurn((), best.failures)

    def _rank_parse(self, parsed: Parsed) -> tuple[int, int, int]:
        """Known calls count most; then few failures, of the more informative classes."""
        vague = sum(failure.kind in _VAGUE for failure in parsed.failures)
        return self._num_known(parsed), -vague, -len(parsed.failures)

    def _num_known(self, parsed: Parsed) -> int:
        return sum(call.name in self._names for call in parsed.calls)

    def _names_a_tool(self, text: str) -> bool:
        return any(name in text for name in self._names)

    def _load_formats(self) -> list[ChatFormat]:
        if self._formats is None:
            from rlf.chat.format import FORMATS
            from rlf.chat.repair import stand_in

            names = FORMATS.names() if self._form == AUTO else [self._form]
            self._formats = []
            for name in names:
                with suppress(RlfError) if self._form == AUTO else nullcontext():  # some cannot call just these tools
                    self._formats.append(stand_in(name, self._tools))
            for format_ in self._formats:
                format_.begins_thinking = False  # the server has taken thinking out
        return self._formats
