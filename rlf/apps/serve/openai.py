"""Answers in the form of `/v1/chat/completions` and `/v1/completions`, whole and as chunks of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from rlf.apps.serve.dialect import Dialect, Event, Json
from rlf.apps.serve.generation import AnswerRequest, Delta
from rlf.apps.serve.model import ServedModel
from rlf.apps.serve.requests import ChatRequest, CompletionRequest, show_logprobs
from rlf.apps.serve.turns import calls_of, write_message


class _OpenAi(Dialect):
    """The parts that both forms share."""

    prefix: ClassVar[str]
    """Begins the ids."""
    kind: ClassVar[str]
    chunk_kind: ClassVar[str]
    asked: Any
    _head: Json

    @property
    def num_answers(self) -> int:
        """How many are sampled for it."""
        return int(self.asked.n)

    async def prepare(self, model: ServedModel) -> list[AnswerRequest]:
        """Prepares the answers to be sampled. Raises Refusal."""
        self.prepared = await self._prepare_prompts(model)
        self._tokenizer = model.tokenizer
        # A judge's verdict is read from the model's own distribution, at temperature 1; others see the one sampled
        # from.
        self._temperature = None if model.settings.strict else self.asked.temperature
        id_ = f"{self.prefix}-{secrets.token_hex(12)}"
        self._head = {"id": id_, "created": int(time.time()), "model": self.asked.model}
        return self.prepared

    async def _prepare_prompts(self, model: ServedModel) -> list[AnswerRequest]:
        raise NotImplementedError

    def whole(self, deltas: Sequence[Delta]) -> Json:
        """The answer."""
        self.count(deltas)
        return {
            **self._head,
            "object": self.kind,
            "choices": [self._make_choice(delta) for delta in deltas],
            "usage": self._show_usage(),
            **self._prompt_ids(),
        }

    def chunks(self, deltas: Sequence[Delta]) -> Iterator[Event]:
        """Chunks of what is new."""
        # One choice a chunk, as OpenAI sends them, also where several answers grow at once.
        self.count(deltas)
        for delta in deltas:
            for choice in self._chunk_choices(delta):
                yield {**self._head, "object": self.chunk_kind, "choices": [choice]}

    def end(self) -> Iterator[Event]:
        """The number of tokens, where it is asked for, and the last word."""
        if self.asked.stream_options.include_usage:
            yield {**self._head, "object": self.chunk_kind, "choices": [], "usage": self._show_usage()}
        yield "[DONE]"

    def _show_usage(self) -> Json:
        # Each prompt stands in `prepared` once for each of its answers, and is counted once.
        num_prompt = sum(len(each.tokens) for each in self.prepared) // self.asked.n
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": self.num_sampled,
            "total_tokens": num_prompt + self.num_sampled,
        }

    def _prompt_ids(self) -> Json:
        return {"prompt_token_ids": list(self.prepared[0].tokens)} if self.asked.return_token_ids else {}

    def _token_ids(self, delta: Delta) -> Json:
        """Tokens, and what an agent did."""
        ids = {"token_ids": list(delta.tokens)} if self.asked.return_token_ids else {}
        return ids if delta.report is None else {**ids, "agent": delta.report}

    def _show_logprobs(self, delta: Delta) -> list[Json]:
        asked = self.asked
        sampled = delta.tokens, delta.logprobs, delta.tops
        as_ids = asked.return_tokens_as_token_ids
        return show_logprobs(self._tokenizer, *sampled, asked.num_top, self._temperature, as_ids=as_ids)

    def _make_choice(self, delta: Delta) -> Json:
        raise NotImplementedError

    def _chunk_choices(self, delta: Delta) -> Iterator[Json]:
        raise NotImplementedError


class Chat(_OpenAi):
    """`/v1/chat/completions`."""

    prefix = "chatcmpl"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"
    request = ChatRequest
    asked: ChatRequest

    async def _prepare_prompts(self, model: ServedModel) -> list[AnswerRequest]:
        return await model.prepare_chat(self.asked)

    def begin(self) -> Iterator[Event]:
        """The role of each answer."""
        for each in self.prepared:
            choice = {"index": each.index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            yield {**self._head, "object": self.chunk_kind, "choices": [choice], **self._prompt_ids()}

    def _make_choice(self, delta: Delta) -> Json:
        logprobs = {"content": self._show_logprobs(delta)} if self.asked.logprobs else None
        return {
            "index": delta.index,
            "message": write_message(delta.text, delta.calls, delta.reasoning),
            "finish_reason": delta.finish,
            "logprobs": logprobs,
            **self._token_ids(delta),
        }

    def _chunk_choices(self, delta: Delta) -> Iterator[Json]:
        """The text, with all that belongs to its tokens; calls, each by its name first; why it ended."""
        message: Json = {"content": delta.text} if delta.text else {}
        if delta.reasoning:
            message["reasoning_content"] = delta.reasoning
        extra = self._token_ids(delta) if delta.tokens or delta.report else {}
        logprobs = {"content": self._show_logprobs(delta)} if self.asked.logprobs and delta.tokens else None
        if message or extra or logprobs:
            yield {"index": delta.index, "delta": message, "finish_reason": None, "logprobs": logprobs, **extra}
        for at, call in enumerate(calls_of(delta.calls)):
            arguments = call["function"]["arguments"]
            # The name first, then the arguments: clients take a call to begin with its id and name, and add up the
            # rest.
            call["function"]["arguments"] = ""
            for part in ({"index": at, **call}, {"index": at, "function": {"arguments": arguments}}):
                yield {"index": delta.index, "delta": {"tool_calls": [part]}, "finish_reason": None, "logprobs": None}
        if delta.finish is not None:
            yield {"index": delta.index, "delta": {}, "finish_reason": delta.finish, "logprobs": None}


class Completions(_OpenAi):
    """`/v1/completions`."""

    prefix = "cmpl"
    kind = chunk_kind = "text_completion"
    request = CompletionRequest
    asked: CompletionRequest

    @property
    def num_answers(self) -> int:
        """How many are sampled for it."""
        return self.asked.n * len(self.asked.prompts)

    async def _prepare_prompts(self, model: ServedModel) -> list[AnswerRequest]:
        return await model.prepare_completion(self.asked)

    def _make_choice(self, delta: Delta) -> Json:
        logprobs: Json | None = None
        if self.asked.logprobs is not None:
            shown = self._show_logprobs(delta)
            logprobs = {
                "tokens": [item["token"] for item in shown],
                "token_logprobs": [item["logprob"] for item in shown],
                "top_logprobs": [{o["token"]: o["logprob"] for o in item["top_logprobs"]} for item in shown],
                "text_offset": [],
            }
        ids = self._token_ids(delta)
        if ids:
            ids["prompt_token_ids"] = list(self.prepared[delta.index].tokens)
        return {"index": delta.index, "text": delta.text, "finish_reason": delta.finish, "logprobs": logprobs, **ids}

    def _chunk_choices(self, delta: Delta) -> Iterator[Json]:
        if delta.text or delta.tokens or delta.finish:
            yield self._make_choice(delta)
