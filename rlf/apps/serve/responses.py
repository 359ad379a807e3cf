"""`/v1/responses`: OpenAI's newer protocol; a request may continue from an earlier answer of this server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from rlf.apps.serve.dialect import AnswerBlock, BlockDialect, BlockKind, BlockStage, Event, Json
from rlf.apps.serve.dialogue import StoredConversation
from rlf.apps.serve.generation import Delta
from rlf.apps.serve.requests import ChatRequest, Refusal, read_request
from rlf.core.kinds import StrictModel


class ResponseTool(StrictModel):
    """An element of `tools`; those that OpenAI runs itself are not known here."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedChoice(StrictModel):
    """`tool_choice` that names the tool to be called."""

    type: Literal["function"]
    name: str


class TextFormat(StrictModel):
    """`text.format`."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None

    @property
    def response_format(self) -> Json:
        """In the words of chat completions."""
        return {"type": self.type} | ({} if self.schema_ is None else {"json_schema": {"schema": self.schema_}})


class TextSettings(StrictModel):
    """`text`."""

    format: TextFormat = TextFormat()
    verbosity: Literal["medium"] | None = None


class ReasoningSettings(StrictModel):
    """`reasoning`: the model's template decides whether it thinks."""

    effort: None = None
    summary: Literal["auto"] | None = None


class ResponsesRequest(StrictModel):
    """`/v1/responses`."""

    model: str
    input: str | tuple[dict[str, Any], ...] = Field(min_length=1)
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    stream: bool = False
    tools: tuple[ResponseTool, ...] = ()
    tool_choice: Literal["auto", "none", "required"] | NamedChoice = "auto"
    parallel_tool_calls: bool = True
    text: TextSettings = TextSettings()
    reasoning: ReasoningSettings = ReasoningSettings()
    store: bool = True
    """Whether requests may continue from the answer; kept in memory, as many as fit."""
    previous_response_id: str | None = None
    background: Literal[False] = False
    truncation: Literal["disabled"] = "disabled"
    include: tuple[Literal["reasoning.encrypted_content"], ...] = ()
    top_logprobs: Literal[0] = 0

    def as_chat(self, before: Sequence[Json]) -> ChatRequest:
        """The same as a conversation, after earlier messages. Raises Refusal for what has no place in one."""
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        items = (
            [{"role": "user", "content": self.input}] if isinstance(self.input, str) else list(_join_items(self.input))
        )
        tools = [
            {"function": {key: getattr(tool, key) for key in ("name", "description", "parameters", "strict")}}
            for tool in self.tools
        ]
        choice = self.tool_choice
        body = {
            "model": self.model,
            "messages": [*system, *before, *items],
            "max_tokens": self.max_output_tokens,
            **self.model_dump(include={"temperature", "top_p"} & self.model_fields_set),
            "stream": self.stream,
            "tools": tools,
            "tool_choice": choice if isinstance(choice, str) else {"function": {"name": choice.name}},
            "parallel_tool_calls": self.parallel_tool_calls,
            "response_format": self.text.format.response_format,
        }
        return read_request(ChatRequest, body)


class Responses(BlockDialect):
    """One request."""

    request = ResponsesRequest
    asked: ResponsesRequest
    prefix = "resp"

    def __init__(self, asked: ResponsesRequest) -> None:
        super().__init__(asked)
        self._number = 0
        self._created = int(time.time())

    @property
    def previous(self) -> str | None:
        """The id of the answer that the request continues from."""
        return self.asked.previous_response_id

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """None of its keys holds for a later request."""
        return {} if self.asked.store else None

    def as_chat(self, previous: StoredConversation | None) -> ChatRequest:
        """The request in the words of chat completions. Raises Refusal."""
        return self.asked.as_chat(() if previous is None else [dict(message) for message in previous.messages])

    def refuse_unknown(self, previous: str) -> Refusal:
        """As OpenAI's server does."""
        words = f"previous_response_id: {previous!r:.80} is not known to this server, or not any more. Send the whole "
        words += "conversation as `input`."
        return Refusal(400, words, key="previous_response_id", code="previous_response_not_found")

    def begin(self) -> Iterator[Event]:
        """The answer without content."""
        yield self._make_event("response.created", response=self.show())
        yield self._make_event("response.in_progress", response=self.show())

    def chunks(self, deltas: Sequence[Delta]) -> Iterator[Event]:
        """Items as they open, grow and close."""
        for stage, block, new in self.feed(deltas):
            if stage is BlockStage.OPENED:
                item = _show_item(block, done=False)
                yield self._make_event("response.output_item.added", output_index=block.index, item=item)
            where = {"output_index": block.index, "item_id": _make_id(block)}
            yield from self._part_events(stage, block, new, where)
            if stage is BlockStage.CLOSED:
                item = _show_item(block, done=True)
                yield self._make_event("response.output_item.done", output_index=block.index, item=item)

    def end(self) -> Iterator[Event]:
        """The whole answer."""
        # Kept before the client knows that it is over: its next request may name this answer at once.
        self.keep()
        kind = "response.incomplete" if self._finish == "length" else "response.completed"
        yield self._make_event(kind, response=self.show())

    def _part_events(self, stage: BlockStage, block: AnswerBlock, new: str, where: Json) -> Iterator[Event]:
        """Events of the part of an item that grows."""
        if block.kind is BlockKind.CALL:
            if stage is BlockStage.GROWN:
                yield self._make_event("response.function_call_arguments.delta", **where, delta=new)
            elif stage is BlockStage.CLOSED:
                yield self._make_event("response.function_call_arguments.done", **where, arguments=block.text)
            return
        # An item of text or thinking has one part here: a block that is opened again is another item.
        where, is_text = {**where, "content_index": 0}, block.kind is BlockKind.TEXT
        name = "response.output_text" if is_text else "response.reasoning_text"
        extra: Json = {"logprobs": []} if is_text else {}
        if stage is BlockStage.OPENED:
            yield self._make_event("response.content_part.added", **where, part=_show_part(block, ""))
        elif stage is BlockStage.GROWN:
            yield self._make_event(f"{name}.delta", **where, delta=new, **extra)
        else:
            yield self._make_event(f"{name}.done", **where, text=block.text, **extra)
            yield self._make_event("response.content_part.done", **where, part=_show_part(block, block.text))

    @property
    def _finish(self) -> str | None:
        return None if self.last is None else self.last.finish

    def _make_event(self, kind: str, **values: Any) -> Event:
        # Numbered over the whole stream: clients put events in order by it, and count from 0.
        self._number += 1
        return kind, {"type": kind, "sequence_number": self._number - 1, **values}

    def show(self) -> Json:
        """The answer as far as it was sampled."""
        asked, cut = self.asked, self._finish == "length"
        num_prompt = len(self.prepared[0].tokens)
        usage = {
            "input_tokens": num_prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self.num_sampled,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": num_prompt + self.num_sampled,
        }
        given = {"instructions", "max_output_tokens", "model", "temperature", "top_p", "tools", "tool_choice", "text"}
        return {
            **asked.model_dump(mode="json", include=given | {"parallel_tool_calls", "truncation", "reasoning"}),
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": "in_progress" if self._finish is None else "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [_show_item(block, done=True) for block in self.blocks],
            "previous_response_id": self.previous,
            "store": asked.store,
            "metadata": {},
            "usage": None if self._finish is None else usage,
        }


_PREFIXES = {BlockKind.TEXT: "msg", BlockKind.REASONING: "rs", BlockKind.CALL: "fc"}


def _make_id(block: AnswerBlock) -> str:
    return f"{_PREFIXES[block.kind]}_{block.token}"


def _show_item(block: AnswerBlock, *, done: bool) -> Json:
    item: Json = {"id": _make_id(block), "status": "completed" if done else "in_progress"}
    if block.call is not None:
        arguments = block.text if done else ""
        call = {"call_id": block.call.id, "name": block.call.name, "arguments": arguments}
        return {**item, "type": "function_call", **call}
    content = [_show_part(block, block.text)] if done else []
    if block.kind is BlockKind.REASONING:
        return {**item, "type": "reasoning", "summary": [], "content": content}
    return {**item, "type": "message", "role": "assistant", "content": content}


def _show_part(block: AnswerBlock, text: str) -> Json:
    if block.kind is BlockKind.REASONING:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _join_items(items: Sequence[Json]) -> Iterator[Json]:
    """Items as messages; a model's text and the calls it made with it are one. Raises Refusal."""
    turn: Json | None = None
    thought = ""
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "reasoning":
            parts = item.get("content") or item.get("summary") or ()
            texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
            thought += "".join(text for text in texts if isinstance(text, str))
            continue
        # What the model said in one turn comes as several items: thinking, words, calls. A prompt has one message for
        # them, since a template ends the turn after each message.
        role = "assistant" if kind == "function_call" else item.get("role")
        if role != "assistant":
            yield from [turn] if turn else ()
            turn = None
        if kind == "function_call":
            turn = turn or {"role": "assistant", "content": "", "tool_calls": [], **_as_reasoning(thought)}
            thought = ""
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            turn.setdefault("tool_calls", []).append({"id": item.get("call_id"), "function": function})
        elif kind == "function_call_output":
            yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
        elif kind == "message" and role == "assistant":
            yield from [turn] if turn else ()
            turn = {"role": role, "content": item.get("content"), **_as_reasoning(thought)}
            thought = ""
        elif kind == "message":
            yield {"role": role, "content": item.get("content")}
        else:
            raise Refusal(400, f"input.{at}.type: got {kind!r:.40}; expected a message or a function's", key="input")
    yield from [turn] if turn else ()


def _as_reasoning(thought: str) -> Json:
    return {"reasoning_content": thought} if thought else {}
