"""`/v1/responses`: OpenAI's newer protocol, without its memory: a client sends the whole conversation each time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from rlf.core.models import StrictModel
from rlf.serving.dialects.blocks import Block, Blocks, Kind, Stage
from rlf.serving.dialects.dialect import Dialect, Event, Json
from rlf.serving.generation import Delta, Prepared
from rlf.serving.model import ServedModel
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


class Responses(Dialect):
    """One request."""

    request = ResponsesRequest
    asked: ResponsesRequest

    def __init__(self, asked: ResponsesRequest) -> None:
        super().__init__(asked)
        self._blocks = Blocks()
        self._ids: list[str] = []
        self._finish: str | None = None
        self._number = 0
        self._id, self._created = f"resp_{secrets.token_hex(12)}", int(time.time())

    @property
    def num_answers(self) -> int:
        """How many are sampled for it."""
        return 1

    async def prepare(self, model: ServedModel) -> list[Prepared]:
        """What is to be sampled. Raises Refusal."""
        self.prepared = await model.prepare_chat(self.asked.as_chat())
        return self.prepared

    def whole(self, deltas: Sequence[Delta]) -> Json:
        """The answer."""
        for _ in self._feed_deltas(deltas):
            pass
        return self._show_response()

    def begin(self) -> Iterator[Event]:
        """The answer without content."""
        yield self._make_event("response.created", response=self._show_response())
        yield self._make_event("response.in_progress", response=self._show_response())

    def chunks(self, deltas: Sequence[Delta]) -> Iterator[Event]:
        """Items as they open, grow and close."""
        for stage, block, new in self._feed_deltas(deltas):
            if stage is Stage.OPENED:
                yield self._make_event(
                    "response.output_item.added", output_index=block.index, item=self._show_item(block)
                )
            where = {"output_index": block.index, "item_id": self._ids[block.index]}
            yield from self._part_events(stage, block, new, where)
            if stage is Stage.CLOSED:
                item = self._show_item(block, done=True)
                yield self._make_event("response.output_item.done", output_index=block.index, item=item)

    def end(self) -> Iterator[Event]:
        """The whole answer."""
        kind = "response.incomplete" if self._finish == "length" else "response.completed"
        yield self._make_event(kind, response=self._show_response())

    def _part_events(self, stage: Stage, block: Block, new: str, where: Json) -> Iterator[Event]:
        """What is reported of the part of an item that grows."""
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

    def _feed_deltas(self, deltas: Sequence[Delta]) -> Iterator[tuple[Stage, Block, str]]:
        self.count(deltas)
        for delta in deltas:
            self._finish = delta.finish or self._finish
        for stage, block, new in self._blocks.feed(deltas):
            if stage is Stage.OPENED:
                self._ids.append(f"{_PREFIXES[block.kind]}_{secrets.token_hex(12)}")
            yield stage, block, new

    def _make_event(self, kind: str, **values: Any) -> Event:
        self._number += 1
        return kind, {"type": kind, "sequence_number": self._number - 1, **values}

    def _show_item(self, block: Block, *, done: bool = False) -> Json:
        item: Json = {"id": self._ids[block.index], "status": "completed" if done else "in_progress"}
        if block.call is not None:
            arguments = block.text if done else ""
            call = {"call_id": block.call.id, "name": block.call.name, "arguments": arguments}
            return {**item, "type": "function_call", **call}
        content = [_show_part(block, block.text)] if done else []
        if block.kind is Kind.REASONING:
            return {**item, "type": "reasoning", "summary": [], "content": content}
        return {**item, "type": "message", "role": "assistant", "content": content}

    def _show_response(self) -> Json:
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
            "output": [self._show_item(block, done=True) for block in self._blocks.all],
            "previous_response_id": None,
            "store": False,
            "metadata": {},
            "usage": None if self._finish is None else usage,
        }


_PREFIXES = {Kind.TEXT: "msg", Kind.REASONING: "rs", Kind.CALL: "fc"}


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
