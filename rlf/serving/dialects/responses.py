"""`/v1/responses`: OpenAI's newer protocol, without its memory: a client sends the whole conversation each time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from rlf.core.models import StrictModel
from rlf.serving.dialects.blocks import Block, BlockDialect, Kind, Stage
from rlf.serving.dialects.dialect import Event, Json
from rlf.serving.generation import Delta
from rlf.serving.refusal import Refusal
from rlf.serving.requests import ChatRequest, read_request


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

    type: Literal["text"] = "text"


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
    store: bool = False
    """Whatever is asked, nothing is kept, and the answer says so."""
    background: Literal[False] = False
    truncation: Literal["disabled"] = "disabled"
    include: tuple[Literal["reasoning.encrypted_content"], ...] = ()
    top_logprobs: Literal[0] = 0

    def as_chat(self) -> ChatRequest:
        """The same as a conversation. Raises Refusal for what has no place in one."""
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        items = (
            [{"role": "user", "content": self.input}] if isinstance(self.input, str) else list(_join_items(self.input))
        )
        tools = [
            {"function": {"name": t.name, "description": t.description, "parameters": t.parameters}} for t in self.tools
        ]
        choice = self.tool_choice
        body = {
            "model": self.model,
            "messages": [*system, *items],
            "max_tokens": self.max_output_tokens,
            **self.model_dump(include={"temperature", "top_p"} & self.model_fields_set),
            "stream": self.stream,
            "tools": tools,
            "tool_choice": choice if isinstance(choice, str) else {"function": {"name": choice.name}},
            "parallel_tool_calls": self.parallel_tool_calls,
        }
        return read_request(ChatRequest, body)


class Responses(BlockDialect):
    """One request."""

    request = ResponsesRequest
    asked: ResponsesRequest

    def __init__(self, asked: ResponsesRequest) -> None:
        super().__init__(asked)
        self._number = 0
        self._id, self._created = f"resp_{secrets.token_hex(12)}", int(time.time())

    def begin(self) -> Iterator[Event]:
        """The answer without content."""
        yield self._make_event("response.created", response=self.show())
        yield self._make_event("response.in_progress", response=self.show())

    def chunks(self, deltas: Sequence[Delta]) -> Iterator[Event]:
        """Items as they open, grow and close."""
        for stage, block, new in self.feed(deltas):
            if stage is Stage.OPENED:
                item = _show_item(block, done=False)
                yield self._make_event("response.output_item.added", output_index=block.index, item=item)
            where = {"output_index": block.index, "item_id": _make_id(block)}
            yield from self._part_events(stage, block, new, where)
            if stage is Stage.CLOSED:
                item = _show_item(block, done=True)
                yield self._make_event("response.output_item.done", output_index=block.index, item=item)

    def end(self) -> Iterator[Event]:
        """The whole answer."""
        kind = "response.incomplete" if self._finish == "length" else "response.completed"
        yield self._make_event(kind, response=self.show())

    def _part_events(self, stage: Stage, block: Block, new: str, where: Json) -> Iterator[Event]:
        """Events of the part of an item that grows."""
        if block.kind is Kind.CALL:
            if stage is Stage.GROWN:
                yield self._make_event("response.function_call_arguments.delta", **where, delta=new)
            elif stage is Stage.CLOSED:
                yield self._make_event("response.function_call_arguments.done", **where, arguments=block.text)
            return
        where, is_text = {**where, "content_index": 0}, block.kind is Kind.TEXT
        name = "response.output_text" if is_text else "response.reasoning_text"
        extra: Json = {"logprobs": []} if is_text else {}
        if stage is Stage.OPENED:
            yield self._make_event("response.content_part.added", **where, part=_show_part(block, ""))
        elif stage is Stage.GROWN:
            yield self._make_event(f"{name}.delta", **where, delta=new, **extra)
        else:
            yield self._make_event(f"{name}.done", **where, text=block.text, **extra)
            yield self._make_event("response.content_part.done", **where, part=_show_part(block, block.text))

    @property
    def _finish(self) -> str | None:
        return None if self.last is None else self.last.finish

    def _make_event(self, kind: str, **values: Any) -> Event:
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
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": "in_progress" if self._finish is None else "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [_show_item(block, done=True) for block in self.blocks.all],
            "previous_response_id": None,
            "store": False,
            "metadata": {},
            "usage": None if self._finish is None else usage,
        }


_PREFIXES = {Kind.TEXT: "msg", Kind.REASONING: "rs", Kind.CALL: "fc"}


def _make_id(block: Block) -> str:
    return f"{_PREFIXES[block.kind]}_{block.token}"


def _show_item(block: Block, *, done: bool) -> Json:
    item: Json = {"id": _make_id(block), "status": "completed" if done else "in_progress"}
    if block.call is not None:
        arguments = block.text if done else ""
        call = {"call_id": block.call.id, "name": block.call.name, "arguments": arguments}
        return {**item, "type": "function_call", **call}
    content = [_show_part(block, block.text)] if done else []
    if block.kind is Kind.REASONING:
        return {**item, "type": "reasoning", "summary": [], "content": content}
    return {**item, "type": "message", "role": "assistant", "content": content}


def _show_part(block: Block, text: str) -> Json:
    if block.kind is Kind.REASONING:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _join_items(items: Sequence[Json]) -> Iterator[Json]:
    """Items as messages; a model's text and the calls it made with it are one. Raises Refusal."""
    turn: Json | None = None
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "reasoning":
            continue
        role = "assistant" if kind == "function_call" else item.get("role")
        if role != "assistant":
            yield from [turn] if turn else ()
            turn = None
        if kind == "function_call":
            turn = turn or {"role": "assistant", "content": "", "tool_calls": []}
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            turn.setdefault("tool_calls", []).append({"id": item.get("call_id"), "function": function})
        elif kind == "function_call_output":
            yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
        elif kind == "message" and role == "assistant":
            yield from [turn] if turn else ()
            turn = {"role": role, "content": item.get("content")}
        elif kind == "message":
            yield {"role": role, "content": item.get("content")}
        else:
            raise Refusal(400, f"input.{at}.type: got {kind!r:.40}; expected a message or a function's", key="input")
    yield from [turn] if turn else ()
