"""A model that is served: requests as prompts and settings of the sampler."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeVar

from rlf.apps.serve import ServeSettings
from rlf.apps.serve.agent import ServedAgent
from rlf.apps.serve.dialogue import CheckedMessage, Dialogue, SampledTurn, TurnOpening, check_messages, choose_opening
from rlf.apps.serve.generation import AnswerRequest, Delta, HostGate
from rlf.apps.serve.grammar import CallsForm, SchemaForm
from rlf.apps.serve.requests import ChatRequest, CompletionRequest, NamedTool, Refusal, SampledRequest, Tools
from rlf.apps.serve.turns import TurnReader, decode_turn, random_ids, write_message
from rlf.chat import ChatFormat
from rlf.chat.marks import ParsedTurn
from rlf.core.errors import RlfError
from rlf.core.identity import derive_seed
from rlf.types import ToolCall
from rlf.types.policy import Policy, Sample, Sampling

logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_Settings = tuple[float, float, int, float]
_LARGE_CHARS = 50_000
"""Text above which tokens are made on a thread: other requests continue meanwhile."""


class ServedModel:
    """One model with what reads and writes for it."""

    def __init__(
        self, gate: HostGate, dialogue: Dialogue, settings: ServeSettings, agent: ServedAgent | None = None
    ) -> None:
        self.agent = agent
        """Plays conversations to their answers; None: a request is one turn."""
        self.gate = gate
        self.dialogue = dialogue
        self.settings = settings
        self.tokenizer = dialogue.tokenizer
        self._end_tokens = gate.host.end_tokens(dialogue.tokenizer)

    @property
    def max_tokens(self) -> int:
        """Of the longest prompt and answer together."""
        return self.gate.host.max_tokens

    async def look_ahead(self, tokens: Sequence[int], sampling: Sampling, seed: int) -> Sample:
        """The next token, which only decides how a call that is demanded begins."""
        return await self.gate.host.complete(tokens, 1, sampling, seed)

    def make_ids(self, index: int, number: int) -> list[str]:
        """Ids for so many calls of an answer."""
        return random_ids(number)

    def check_name(self, name: str) -> None:
        """Raises Refusal for another model."""
        if name != self.settings.name:
            words = f"the model {name!r:.100} does not exist; this server has {self.settings.name!r}"
            raise Refusal(404, words, key="model", code="model_not_found")

    async def prepare_chat(self, asked: ChatRequest) -> list[AnswerRequest]:
        """Prepares the answers to a conversation. Raises Refusal."""
        self.check_name(asked.model)
        if self.agent is not None:
            return self._prepare_play(asked, self.agent)
        tools, messages = asked.offered, self.read_messages(asked)
        prompt, is_continued = await self.encode_chat(messages, tools)
        if any(message.get("role") == "assistant" for message in asked.messages):
            self.gate.metrics.count_prompt(is_continued=is_continued)
        chat = self.dialogue.chat(tools)
        chat = None if chat is None else chat.after(prompt)
        seeds = self._draw_seeds(asked)
        self._find_room(asked, len(prompt))
        opening = await self._force_call(asked, prompt, chat, seeds[0])
        tokens = [*prompt, *opening.tokens]
        room = self._find_room(asked, len(tokens))
        sampling = self._make_sampling(asked, chat, has_tools=bool(tools))
        form = await self._read_form(asked, chat, sampling.stop_token_ids)
        calls = None if form is not None else await self._read_calls(asked, chat, sampling.stop_token_ids, opening)
        sampling = sampling if form is None and calls is None else replace(sampling, form=form or calls)
        decode = self.dialogue.text if chat is None else lambda sampled: decode_turn(chat, tuple(sampled))

        def prepare(index: int, seed: int) -> AnswerRequest:
            reader = TurnReader(
                chat,
                calls=bool(tools),
                opening=opening.text,
                name=opening.name,
                stops=asked.stops,
                make_ids=partial(self.make_ids, index),
            )

            def done(sample: Sample, text: str, last: Delta, parsed: ParsedTurn | None) -> None:
                is_whole = last.finish != "length" and last.stop is None and not asked.ignore_eos
                if parsed is None or not is_whole or len(last.calls) != len(parsed.calls):
                    return
                if last.calls or parsed.answer is not None:
                    answer = write_message(reader.text, last.calls, last.reasoning)
                    observed = [None if isinstance(item, ToolCall) else item.message for item in parsed.observed]
                    turn = SampledTurn((*tokens, *sample.tokens), opening.text + text, tuple(observed))
                    self.dialogue.remember(messages, tools, answer, turn)

            return AnswerRequest(index, tokens, room, sampling, seed, reader, decode, done)

        return [prepare(index, seed) for index, seed in enumerate(seeds)]

    def _prepare_play(self, asked: ChatRequest, agent: ServedAgent) -> list[AnswerRequest]:
        task, host, sampling = agent.task(asked), self.gate.host, Sampling()
        tokens = agent.prompt(task)
        room = self._find_room(asked, len(tokens))

        def prepare(index: int, seed: int) -> AnswerRequest:
            reader, decode = TurnReader(None, calls=False), self.dialogue.text
            play = partial(agent.play, host, task, asked, room, index, seed)
            return AnswerRequest(index, tokens, room, sampling, seed, reader, decode, play=play)

        return [prepare(index, seed) for index, seed in enumerate(self._draw_seeds(asked))]

    async def count_prompt(self, asked: ChatRequest) -> int:
        """The tokens of a request's prompt. Raises Refusal."""
        self.check_name(asked.model)
        if self.agent is not None:
            return len(self.agent.prompt(self.agent.task(asked)))
        messages = check_messages(asked.messages, sees=self.dialogue.vision is not None)
        return len((await self.encode_chat(messages, asked.offered))[0])

    def read_messages(self, asked: ChatRequest) -> list[CheckedMessage]:
        """What a request says, in the one form that the rest takes. Raises Refusal."""
        return check_messages(asked.messages)

    async def encode_chat(self, messages: list[CheckedMessage], tools: Tools) -> tuple[list[int], bool]:
        """Tokens of a conversation, as `Dialogue.encode`."""
        size = sum(100 + len(str(message.get("content"))) for message in messages)
        return await _off_loop_if_large(size, partial(self.dialogue.encode, messages, tools))

    async def encode_text(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Tokens of a text."""
        encode = partial(self.tokenizer.encode, text, add_special_tokens=add_special_tokens)
        return await _off_loop_if_large(len(text), encode)

    async def prepare_completion(self, asked: CompletionRequest) -> list[AnswerRequest]:
        """Prepares the answers to texts. Raises Refusal."""
        self.check_name(asked.model)
        prompts = [await self._tokens_of(prompt) for prompt in asked.prompts]
        if not prompts:
            raise Refusal(400, "prompt: expected at least one", key="prompt")
        sampling = self._make_sampling(asked, None, has_tools=False)
        prepared: list[AnswerRequest] = []
        for tokens in prompts:
            room = self._find_room(asked, len(tokens))
            for seed in self._draw_seeds(asked):
                reader = TurnReader(None, calls=False, stops=asked.stops)
                prepared.append(AnswerRequest(len(prepared), tokens, room, sampling, seed, reader, self.dialogue.text))
        return prepared

    async def _tokens_of(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            begin = self.tokenizer.bos_token_id
            tokens = await self.encode_text(prompt) or ([begin] if begin is not None else [])
        else:
            tokens = list(prompt)
            if any(not 0 <= token < len(self.tokenizer) for token in tokens):
                raise Refusal(400, f"prompt: expected token ids below {len(self.tokenizer)}", key="prompt")
        if not tokens:
            raise Refusal(400, "prompt: expected some text; this model has no token for an empty one", key="prompt")
        return tokens

    async def _force_call(
        self, asked: ChatRequest, prompt: list[int], chat: ChatFormat | None, seed: int
    ) -> TurnOpening:
        """The beginning of the turn, where the request demands a call."""
        choice = asked.tool_choice
        if isinstance(choice, str) and choice != "required":
            return TurnOpening()
        tools = asked.tools.described
        if not tools or chat is None:
            raise Refusal(400, "tool_choice: a call is required, but there are no `tools`", key="tool_choice")
        if isinstance(choice, NamedTool):
            known = ", ".join(tool.name for tool in tools)
            tools = Tools(tool for tool in tools if tool.name == choice.function.name)
            if not tools:
                words = f"tool_choice: no tool {choice.function.name!r:.80} (known: {known})"
                raise Refusal(400, words, key="tool_choice")
        return await choose_opening(self.look_ahead, chat, prompt, tools, asked.temperature, seed)

    def _make_sampling(self, asked: SampledRequest, chat: ChatFormat | None, *, has_tools: bool) -> Sampling:
        ends = self._end_tokens if chat is None else tuple(dict.fromkeys((*chat.stop_token_ids, *self._end_tokens)))
        stops = [*asked.stops, *(chat.stop_strings if chat is not None else ())]
        if chat is not None and has_tools and isinstance(asked, ChatRequest) and not asked.parallel_tool_calls:
            stops += chat.call_ends  # a format without them has one call a turn anyway
        ends = () if asked.ignore_eos else (*ends, *asked.stop_token_ids)
        texts = tuple(dict.fromkeys((*stops, *self.own_stops)))
        return _share_sampling(self.choose_settings(asked), ends, texts, asked.num_top)

    @property
    def own_stops(self) -> Sequence[str]:
        """Texts that end an answer beside those that a request names."""
        return ()

    def choose_settings(self, asked: SampledRequest) -> _Settings:
        """Temperature, top-p, top-k and min-p."""
        return asked.temperature, asked.top_p, max(0, asked.top_k), asked.min_p

    async def _read_form(self, asked: ChatRequest, chat: ChatFormat | None, ends: tuple[int, ...]) -> SchemaForm | None:
        """The form of the answers. Raises Refusal for one that cannot be followed."""
        if asked.schema_text is None:
            return None
        if asked.offered:
            why = "beside tools a turn is no answer alone: name the schema as a tool's parameters, or leave out `tools`"
        elif chat is not None and chat.begins_thinking:
            why = "the model's template begins each turn with thinking"
        elif asked.ignore_eos:
            why = "`ignore_eos` samples past the end of the form"
        elif not getattr(self.policy, "takes_forms", False):
            why = "the policy's sampler follows no grammar"
        else:
            try:
                return await asyncio.to_thread(SchemaForm, self.tokenizer, asked.schema_text, ends)
            except RlfError as fault:
                why = str(fault)
        raise Refusal(400, f"response_format: {why}.", key="response_format")

    async def _read_calls(
        self, asked: ChatRequest, chat: ChatFormat | None, ends: tuple[int, ...], opening: TurnOpening
    ) -> CallsForm | None:
        """The form of calls of strict tools; None where there are none, or nothing here can hold them to it."""
        strict = frozenset(tool.function.name for tool in asked.tools if tool.function.strict)
        if not strict or not asked.offered or chat is None or not getattr(self.policy, "takes_forms", False):
            return None
        try:
            return await asyncio.to_thread(CallsForm, chat, asked.offered, strict, ends, opening.tokens)
        except RlfError as fault:  # most clients send `strict` whether they need it or not
            _warn_once(f"tools: `strict` has no effect: {fault}")
            return None

    @property
    def policy(self) -> Policy:
        """What samples."""
        return self.gate.host

    def _find_room(self, asked: SampledRequest, num_prompt: int) -> int:
        """Tokens that may be sampled. Raises Refusal where there is no room for them."""
        room, limit = self.max_tokens - num_prompt, asked.limit
        if room < 1 or (self.settings.strict and limit is not None and room < limit):
            words = f"{num_prompt} prompt tokens and {limit or 1} more are over the model's {self.max_tokens}"
            raise Refusal(400, words, key="messages", code="context_length_exceeded")
        return min(room, limit or room)

    def _draw_seeds(self, asked: SampledRequest) -> list[int]:
        """One for each answer: the first has the request's own."""
        seed = secrets.randbits(63) if asked.seed is None else asked.seed
        return [derive_seed(seed, "choice", index) if index else seed for index in range(asked.n)]


@lru_cache(maxsize=256)
def _share_sampling(
    settings: _Settings, ends: tuple[int, ...], stops: tuple[str, ...], num_top: int | None
) -> Sampling:
    """One object for equal settings: a sampler that finds the same one in all rows compares no more of them."""
    return Sampling(*settings, ends, stops, num_top=num_top)


_warn_once = lru_cache(maxsize=32)(partial(logger.warning, "%s"))


async def _off_loop_if_large(num_chars: int, encode: Callable[[], _T]) -> _T:
    return await asyncio.to_thread(encode) if num_chars > _LARGE_CHARS else encode()
