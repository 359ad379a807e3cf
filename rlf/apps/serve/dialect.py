"""A path of the server: how its requests are read, and how its answers are written."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Self

from rlf.apps.serve.dialogue import StoredConversation
from rlf.apps.serve.generation import AnswerRequest, Delta
from rlf.apps.serve.model import ServedModel
from rlf.apps.serve.requests import ChatRequest, Note, Refusal, read_request
from rlf.apps.serve.turns import write_message
from rlf.core.kinds import StrictModel
from rlf.endpoints.openai import RequestedCall

Json = dict[str, Any]
Event = Json | str | tuple[str, Json]
"""Of a stream: an object, a text as it is, or an object with the name of its event."""


class Dialect(ABC):
    """One request."""

    request: ClassVar[type[StrictModel]]
    asked: Any
    prepared: list[AnswerRequest]

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
    async def prepare(self, model: ServedModel) -> list[AnswerRequest]:
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


# An answer as a sequence of blocks, as the newer protocols write it: thinking, text, calls.


class BlockKind(StrEnum):
    """The content of a block."""

    REASONING = "reasoning"
    TEXT = "text"
    CALL = "call"


class BlockStage(StrEnum):
    """A change of a block."""

    OPENED = "opened"
    GROWN = "grown"
    CLOSED = "closed"


@dataclass(slots=True)
class AnswerBlock:
    """One of them."""

    index: int
    kind: BlockKind
    text: str = ""
    """So far; of a call, its arguments."""
    call: RequestedCall | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(12))
    """Random letters for its id."""


class BlockDialect(Dialect):
    """A request with one answer, which is written as blocks."""

    def __init__(self, asked: Any) -> None:
        super().__init__(asked)
        self.blocks: list[AnswerBlock] = []
        """Of its answer so far; text that a model writes after it thought again opens a new one."""
        self._is_open = False
        self.last: Delta | None = None
        self.id = f"{self.prefix}_{secrets.token_hex(12)}"

    prefix: ClassVar[str]
    """Begins the id of the answer."""

    async def prepare(self, model: ServedModel) -> list[AnswerRequest]:
        """Prepares the answer to be sampled. Raises Refusal."""
        previous = None if self.previous is None else model.dialogue.conversations.get(self.previous)
        if self.previous is not None and previous is None:
            raise self.refuse_unknown(self.previous)
        self._conversations = model.dialogue.conversations
        self._chat = self.as_chat(previous)
        self.prepared = await model.prepare_chat(self._chat)
        return self.prepared

    @property
    @abstractmethod
    def previous(self) -> str | None:
        """The id of the answer that the request continues from; None: it holds the whole conversation."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any] | None:
        """Keys that hold for requests that continue from this answer; None: it is not kept."""

    @abstractmethod
    def as_chat(self, previous: StoredConversation | None) -> ChatRequest:
        """The request in the words of chat completions. Raises Refusal for what has none."""

    @abstractmethod
    def refuse_unknown(self, previous: str) -> Refusal:
        """The refusal of a request whose earlier answer is not known, or not any more."""

    # Two bases and no third: a protocol differs from the others in how a request is read and how what is new is
    # written, and the two that write blocks share what follows from that. A dialect holds one request's state, since
    # the events of its stream are numbered and named by what was sent before.

    def keep(self) -> None:
        """Keeps the conversation with its answer, where requests may continue from it."""
        settings = self.settings
        if settings is None:
            return
        text = "".join(block.text for block in self.blocks if block.kind is BlockKind.TEXT)
        thought = "".join(block.text for block in self.blocks if block.kind is BlockKind.REASONING)
        calls = [RequestedCall(b.call.id, b.call.name, b.text) for b in self.blocks if b.call is not None]
        answer = write_message(text, calls, thought)
        # Without the system message: the request that continues brings its own, or has that of `settings`.
        messages = (*(each for each in self._chat.messages if each.get("role") != "system"), answer)
        # Characters as a measure of memory: what is kept is bounded, and the oldest go first.
        size = len(repr(messages)) + len(repr(settings))
        self._conversations.put(self.id, StoredConversation(messages, settings), size)

    def whole(self, deltas: Sequence[Delta]) -> Json:
        """The answer."""
        for _ in self.feed(deltas):
            pass
        self.keep()
        return self.show()

    @abstractmethod
    def show(self) -> Json:
        """The answer as far as it was sampled."""

    def feed(self, deltas: Sequence[Delta]) -> Iterator[tuple[BlockStage, AnswerBlock, str]]:
        """The changes of the blocks, each with its new text."""
        self.count(deltas)
        self.last = deltas[-1]
        for delta in deltas:
            for kind, text in ((BlockKind.REASONING, delta.reasoning), (BlockKind.TEXT, delta.text)):
                if text and not (self._is_open and self.blocks[-1].kind is kind):
                    yield from self._open_block(kind)
                if text:
                    yield self._grow_block(text)
            for call in delta.calls:  # each a block of its own: two in a row are two, however alike
                yield from self._open_block(BlockKind.CALL, call)
                yield self._grow_block(call.arguments)
            if delta.finish is not None:
                yield from self._close_block()

    def _open_block(
        self, kind: BlockKind, call: RequestedCall | None = None
    ) -> Iterator[tuple[BlockStage, AnswerBlock, str]]:
        yield from self._close_block()
        self.blocks.append(AnswerBlock(len(self.blocks), kind, call=call))
        self._is_open = True
        yield BlockStage.OPENED, self.blocks[-1], ""

    def _grow_block(self, text: str) -> tuple[BlockStage, AnswerBlock, str]:
        self.blocks[-1].text += text
        return BlockStage.GROWN, self.blocks[-1], text

    def _close_block(self) -> Iterator[tuple[BlockStage, AnswerBlock, str]]:
        if self._is_open:
            self._is_open = False
            yield BlockStage.CLOSED, self.blocks[-1], ""
