"""`/v1/messages`: Anthropic's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from rlf.apps.serve.dialect import AnswerBlock, BlockDialect, BlockKind, BlockStage, Event, Json
from rlf.apps.serve.dialogue import UNREAD, StoredConversation, read_content
from rlf.apps.serve.generation import Delta
from rlf.apps.serve.requests import ChatRequest, Refusal, read_request
from rlf.core.kinds import StrictModel

_STOPS = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}


class AnthropicTool(StrictModel):
    """An element of `tools`; those that Anthropic runs itself are not known here."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    cache_control: dict[str, Any] | None = None


class ToolChoice(StrictModel):
    """`tool_choice`."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(StrictModel):
    """`thinking`: the model's template decides whether it thinks, and its thoughts count among the answer's tokens."""

    type: Literal["disabled", "adaptive", "enabled", "between_tools"]
    budget_tokens: int | None = None
    """Taken without effect: the sampler bounds an answer as a whole, by `max_tokens`."""


class OutputFormat(StrictModel):
    """`output_config.format`."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(StrictModel):
    """`output_config`."""

    effort: str | None = None
    """Taken without effect, as `thinking` is."""
    format: OutputFormat | None = None


class Thread(StrictModel):
    """`thread`: whether the conversation is kept here under the id of the answer, and from which it continues."""

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class MessagesRequest(StrictModel):
    """`/v1/messages`."""

    model: str
    max_tokens: int = Field(ge=1)
    messages: tuple[dict[str, Any], ...] = Field(min_length=1)
    system: str | tuple[dict[str, Any], ...] = ""
    stop_sequences: tuple[str, ...] = ()
    stream: bool = False
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    tools: tuple[AnthropicTool, ...] = ()
    tool_choice: ToolChoice = ToolChoice(type="auto")
    thinking: Thinking | None = None
    thread: Thread | None = None
    output_config: OutputConfig = OutputConfig()

    def as_chat(self, before: Sequence[Json] = ()) -> ChatRequest:
        """The same in OpenAI's words, after earlier messages. Raises Refusal for what has none."""
        system = [{"role": "system", "content": read_content(self.system, "system")}] if self.system else []
        messages = [
            converted
            for at, message in enumerate(self.messages)
            for converted in _to_openai_messages(message, f"messages.{at}")
        ]
        tools = [
            {"function": {"parameters": t.input_schema, **t.model_dump(include={"name", "description", "strict"})}}
            for t in self.tools
        ]
        form = self.output_config.format
        choice: Any = {"any": "required", "tool": {"function": {"name": self.tool_choice.name or ""}}}
        body = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": [*system, *before, *messages],
            "stop": self.stop_sequences,
            "stream": self.stream,
            **self.model_dump(include={"temperature", "top_p", "top_k"} & self.model_fields_set),
            "tools": tools,
            "tool_choice": choice.get(self.tool_choice.type, self.tool_choice.type),
            "parallel_tool_calls": not self.tool_choice.disable_parallel_tool_use,
            "response_format": form and {"type": "json_schema", "json_schema": {"schema": form.schema_}},
        }
        return read_request(ChatRequest, body)


class CountRequest(MessagesRequest):
    """`/v1/messages/count_tokens`: a request that is not answered."""

    max_tokens: int = Field(default=1, ge=1)


class Messages(BlockDialect):
    """One request."""

    request = MessagesRequest
    asked: MessagesRequest
    prefix = "msg"

    @property
    def previous(self) -> str | None:
        """The id of the answer that the request continues from."""
        return None if self.asked.thread is None else self.asked.thread.previous_message_id

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """A thread has the system's words and the tools that it began with."""
        return None if self.asked.thread is None else {"system": self.asked.system, "tools": self.asked.tools}

    def as_chat(self, previous: StoredConversation | None) -> ChatRequest:
        """The request in the words of chat completions. Raises Refusal."""
        if previous is None:
            return self.asked.as_chat()
        # Only what the request does not set itself: a thread may be continued with other tools.
        kept = {key: value for key, value in previous.settings.items() if key not in self.asked.model_fields_set}
        self.asked = self.asked.model_copy(update=kept)
        return self.asked.as_chat([dict(message) for message in previous.messages])

    def refuse_unknown(self, previous: str) -> Refusal:
        """As Anthropic's server does: its client sends the whole conversation then."""
        words = f"thread.previous_message_id: {previous!r:.80} is not known to this server, or not any more"
        return Refusal(404, words, key="thread", code="thread_not_found")

    def show(self) -> Json:
        """The answer."""
        content = [{**_opened_block(block), **_finished_block(block)} for block in self.blocks]
        return {**self._begin_message(), "content": content, **self._end_of_turn(), "usage": self._show_usage()}

    def begin(self) -> Iterator[Event]:
        """The message without content."""
        message = {
            **self._begin_message(),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._show_usage(),
        }
        yield _make_event("message_start", message=message)

    def chunks(self, deltas: Sequence[Delta]) -> Iterator[Event]:
        """Blocks as they open, grow and close."""
        for stage, block, new in self.feed(deltas):
            if stage is BlockStage.OPENED:
                yield _make_event("content_block_start", index=block.index, content_block=_opened_block(block))
            elif stage is BlockStage.GROWN:
                kind, key = _DELTAS[block.kind]
                yield _make_event("content_block_delta", index=block.index, delta={"type": kind, key: new})
            else:
                yield _make_event("content_block_stop", index=block.index)

    def end(self) -> Iterator[Event]:
        """Why it ended."""
        # Kept before the client knows that it is over: its next request may name this answer at once.
        self.keep()
        yield _make_event("message_delta", delta=self._end_of_turn(), usage=self._show_usage())
        yield _make_event("message_stop")

    @staticmethod
    def error(refused: Refusal) -> Json:
        """Why there is no answer."""
        details = {} if refused.code is None else {"details": {"error_code": refused.code}}
        return {"type": "error", "error": {"type": refused.kind, "message": str(refused), **details}}

    def _begin_message(self) -> Json:
        return {"id": self.id, "type": "message", "role": "assistant", "model": self.asked.model}

    def _end_of_turn(self) -> Json:
        assert self.last is not None and self.last.finish is not None, "an answer without an end"
        stop = self.last.stop
        return {"stop_reason": "stop_sequence" if stop else _STOPS[self.last.finish], "stop_sequence": stop}

    def _show_usage(self) -> Json:
        return {"input_tokens": len(self.prepared[0].tokens), "output_tokens": self.num_sampled}


_DELTAS = {
    BlockKind.TEXT: ("text_delta", "text"),
    BlockKind.REASONING: ("thinking_delta", "thinking"),
    BlockKind.CALL: ("input_json_delta", "partial_json"),
}


def _make_event(kind: str, **values: Any) -> Event:
    return kind, {"type": kind, **values}


def _opened_block(block: AnswerBlock) -> Json:
    """A block when it opens."""
    if block.call is not None:
        return {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": {}}
    return (
        {"type": "text", "text": ""}
        if block.kind is BlockKind.TEXT
        else {"type": "thinking", "thinking": "", "signature": ""}
    )


def _finished_block(block: AnswerBlock) -> Json:
    """The fields that a whole block has in place of that."""
    if block.call is None:
        return {block.kind.value if block.kind is BlockKind.TEXT else "thinking": block.text}
    # A call whose arguments are no object is shown all the same, under the key under which `dialogue` puts such
    # arguments into a prompt: what the client sends back renders as if it had never left.
    try:
        value = json.loads(block.text)
    except (ValueError, RecursionError):
        value = None
    return {"input": value if isinstance(value, dict) else {UNREAD: block.text}}


def _to_openai_messages(message: Mapping[str, Any], where: str) -> Iterator[Json]:
    """A message as those of OpenAI: the results of calls are messages of their own. Raises Refusal."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise Refusal(400, f"{where}.role: got {role!r:.40}; expected user, assistant or system", key="messages")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise Refusal(400, f"{where}.content: expected a text or a list of blocks", key="messages")
    results = [block for block in blocks if block.get("type") == "tool_result"]
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    thoughts = [block.get("thinking") for block in blocks if block.get("type") == "thinking"]
    thought = "".join(text for text in thoughts if isinstance(text, str))
    rest = [block for block in blocks if block.get("type") not in ("tool_result", "tool_use", "thinking")]
    # Results first: a template wants them right after the calls, and the user's words in the same message follow.
    for block in results:
        text = _read_content(block.get("content") or "", f"{where}.content")
        yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}
    text = _read_content(rest, f"{where}.content")
    if role == "assistant":
        asked = [{"id": c.get("id"), "function": {"name": c.get("name"), "arguments": c.get("input")}} for c in calls]
        reasoning = {"reasoning_content": thought} if thought else {}
        yield {"role": role, "content": text, **reasoning, **({"tool_calls": asked} if asked else {})}
    elif text or not results:  # a message of results alone says nothing of its own
        yield {"role": role, "content": text}


def _read_content(content: Any, where: str) -> str | list[Json]:
    """A content as OpenAI's: its text, or parts where images are among its blocks. Raises Refusal for other blocks."""
    if not isinstance(content, list) or not any(isinstance(b, dict) and b.get("type") == "image" for b in content):
        return read_content(content, where)
    return [_read_image(b) or {"type": "text", "text": read_content([b], where)} for b in content]


def _read_image(block: Any) -> Json | None:
    """An image as OpenAI's part of a content; None for another block."""
    source = block.get("source") if isinstance(block, dict) and block.get("type") == "image" else None
    if not isinstance(source, dict):
        return None
    url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
    return {"type": "image_url", "image_url": {"url": url}}
