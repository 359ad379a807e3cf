"""A sampled turn's calls, failures and answer, so typed that no failed call is an answer unnoticed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rlf.core.plain_json import Jsonable
from rlf.types import FailureClass, ParseFailure, ToolCall


@dataclass(frozen=True, slots=True)
class Parsed(Jsonable):
    """The meaning of one sampled turn."""

    items: tuple[ToolCall | ParseFailure, ...] = field(metadata={"json": None})
    """Calls and failures in the order of the text."""
    answer: str | None
    """The final answer; None when the turn calls, or fails in any way but rehearsing a call while thinking."""
    thinking: str
    """What was thought, without its tags; empty when nothing was."""
    JSON_PROPERTIES: ClassVar = ("calls", "failures")

    def __post_init__(self) -> None:
        assert self.items or self.answer is not None, "a turn that says nothing and does not fail"
        assert self.answer is None or not self.observed, f"an answer beside {self.observed}"

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every well-formed call outside thinking: safe to run whatever failed beside it."""
        return tuple(item for item in self.items if isinstance(item, ToolCall))

    @property
    def failures(self) -> tuple[ParseFailure, ...]:
        """Every failure, to be counted."""
        return tuple(item for item in self.items if isinstance(item, ParseFailure))

    @property
    def observed(self) -> tuple[ToolCall | ParseFailure, ...]:
        """The items that the next observation answers, in order; empty exactly when the turn is an answer.

        A call rehearsed while thinking is answered only when the turn holds nothing else: beside a call or an answer
        the model has already said what it means.
        """
        spoken = tuple(item for item in self.items if not _is_rehearsal(item))
        return spoken if spoken or self.answer is not None else self.items


def _is_rehearsal(item: ToolCall | ParseFailure) -> bool:
    return isinstance(item, ParseFailure) and item.kind is FailureClass.IN_THINKING
