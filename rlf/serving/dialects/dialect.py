"""A path of the server: how its requests are read, and how its answers are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from rlf.core.kinds import StrictModel
from rlf.serving.generation import Delta, Prepared
from rlf.serving.model import ServedModel
from rlf.serving.refusal import Refusal
from rlf.serving.requests import Note, read_request

Json = dict[str, Any]
Event = Json | str | tuple[str, Json]
"""Of a stream: an object, a text as it is, or an object with the name of its event."""


class Dialect(ABC):
    """One request."""

    request: ClassVar[type[StrictModel]]
    asked: Any
    prepared: list[Prepared]

    def __init__(self, asked: Any) -> None:
        self.asked = asked
        self.num_sampled = 0
        """Tokens of all its answers so far."""

    @classmethod
    def read(cls, body: Mapping[str, Any], *, strict: bool, note: Note) -> Self:
        """A request. Raises Refusal for what cannot be honoured; `note` hears of keys that are left out."""
        return cls(read_request(cls.request, body, strict=strict, note=note))

    @property
    def stream(self) -> bool:
        """Whether the answer is sent as it is sampled."""
        return bool(self.asked.stream)

    @property
    def num_answers(self) -> int:
        """How many are sampled for it."""
        return 1

    @abstractmethod
    async def prepare(self, model: ServedModel) -> list[Prepared]:
        """Prepares the answers to be sampled. Raises Refusal."""

    @abstractmethod
    def whole(self, deltas: Sequence[Delta]) -> Json:
        """The answer, of one delta for each that was sampled."""

    def begin(self) -> Iterator[Event]:
        """Events that a stream begins with."""
        yield from ()

    @abstractmethod
    def chunks(self, deltas: Sequence[Delta]) -> Iterator[Event]:
        """Events of what is new."""

    @abstractmethod
    def end(self) -> Iterator[Event]:
        """Events when all is over."""

    @staticmethod
    def error(refused: Refusal) -> Json:
        """Why there is no answer, or no more of it."""
        words = {"message": str(refused), "type": refused.kind, "param": refused.key, "code": refused.code}
        return {"error": words}

    def count(self, deltas: Sequence[Delta]) -> None:
        """Counts what was sampled."""
        self.num_sampled += sum(len(d.tokens) if d.num_sampled is None else d.num_sampled for d in deltas)
