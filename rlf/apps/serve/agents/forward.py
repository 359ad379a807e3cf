"""An agent before a model behind an endpoint: what it asks is sent there, and kept by its words.

The endpoint keeps its tokens to itself, so that a trajectory holds none and nothing can be learned from it. A call
continues an earlier one where its messages begin with that call's messages and its answer.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rlf.apps.serve.agent import AgentAnswer, Report
from rlf.apps.serve.agents.calls import Call
from rlf.apps.serve.agents.session import Session, SessionModel
from rlf.apps.serve.generation import AnswerRequest
from rlf.apps.serve.model import ServedModel
from rlf.apps.serve.requests import ChatRequest, CompletionRequest, NamedTool, Refusal
from rlf.apps.serve.turns import TurnReader
from rlf.chat.format import ChatFormat
from rlf.core.identity import derive_seed
from rlf.core.meter import Meter
from rlf.endpoints.openai import Completion, NoAnswer, RequestedCall
from rlf.endpoints.pool import Caller
from rlf.endpoints.spec import EndpointFailure, SamplingSpec, Usage
from rlf.rollout.by_text import TextPlayer
from rlf.rollout.loop import Setting
from rlf.tools.agent_text import read_call
from rlf.types import FailureClass, ParseFailure
from rlf.types.policy import Finish, Sample, SampleRequest, Sampling
from rlf.types.trajectory import SAMPLER, MissingRewardCause, StopReason

_SENT = ("role", "content", "name", "tool_calls", "tool_call_id")
"""Keys of a message that an endpoint is sent: others, such as thinking, are refused by some servers."""
_UNSENT = ("logprobs", "return_token_ids", "ignore_eos", "stop_token_ids")
"""Keys of a request that ask for tokens, or name them."""


def setting_of(player: TextPlayer, chat: ChatFormat) -> Setting:
    """What the player shares with rlf's own loop. Args: chat: a stand-in, which writes and reads nothing."""
    return Setting(_Endpoint(), chat, player.tools, player.limits, Sampling(), worlds=player.worlds)


class _Endpoint:
    """The endpoint where a policy stands: nothing is kept of a trajectory, and tokens are not sampled."""

    def open(self, trajectory_ids: Sequence[str]) -> None:
        pass

    def release(self, trajectory_id: str) -> None:
        pass

    async def sample(self, request: SampleRequest) -> Sample:
        raise NotImplementedError


class ForwardedSession(Session):
    """A trajectory whose calls an endpoint answers."""

    has_tokens = False

    def __init__(self, *session: Any, asks: TextPlayer) -> None:
        """Takes what a session takes, and what asks the endpoint."""
        super().__init__(*session, overrides=False)
        self.asks = asks
        self.meter = Meter(asks.meter)
        self.num_used = 0
        """Tokens of the latest call, prompt and answer, as the server counts them."""

    def model(self, *model: Any) -> ServedModel:
        """The endpoint as one request meets it."""
        return ForwardedModel(self, *model)


class ForwardedModel(SessionModel):
    """The endpoint as one request of a trajectory meets it."""

    _session: ForwardedSession

    async def prepare_chat(self, asked: ChatRequest) -> list[AnswerRequest]:
        """Prepares the answers to a conversation. Raises Refusal."""
        self.check_name(asked.model)
        for key in _UNSENT:
            if getattr(asked, key) != ChatRequest.model_fields[key].default:
                raise Refusal(400, f"{key}: a model behind an endpoint gives no tokens. Leave the key out.", key=key)
        self._take_messages(asked, [_show_images(message) for message in asked.messages])
        # Of the prompt the number of tokens alone is known, once it is answered.
        prompt, reader = bytearray(), TurnReader(None, calls=False)
        room, sampling, decode = self._session.asks.limits.max_total_tokens, Sampling(), self.dialogue.text

        def prepare(index: int) -> AnswerRequest:
            play = partial(self._forward, asked, index, prompt)
            return AnswerRequest(index, prompt, room, sampling, index, reader, decode, play=play)

        return list(map(prepare, range(asked.n)))

    async def prepare_completion(self, asked: CompletionRequest) -> list[AnswerRequest]:
        """Refused: an endpoint is sent conversations."""
        raise Refusal(400, "a model behind an endpoint is asked by conversations: use /v1/chat/completions")

    async def count_prompt(self, asked: ChatRequest) -> int:
        """Refused: the tokenizer is the endpoint's own."""
        raise Refusal(400, "the tokens of a model behind an endpoint are not known before it answers")

    async def _forward(self, asked: ChatRequest, index: int, prompt: bytearray, report: Report) -> AgentAnswer:
        completion = await self._session.repeat_or(self._asked.attempt, index, partial(self._ask, asked, index))
        prompt += bytes(completion.usage.prompt_tokens)
        finish = "length" if completion.is_truncated else "stop"
        return AgentAnswer(
            completion.text,
            "tool_calls" if completion.calls else finish,
            (),
            (),
            completion.usage.completion_tokens,
            reasoning=completion.reasoning,
            calls=completion.calls,
        )

    async def _ask(self, asked: ChatRequest, index: int) -> Completion:
        session, player = self._session, self._session.asks
        answers: list[Completion] = []

        async def draw(parent: Call | None) -> Call:
            if session.num_used >= player.limits.max_total_tokens:
                raise session.refuse_full(session.num_used)
            started = time.perf_counter()
            completion, failures = await self._fetch(asked)
            session.num_used = completion.usage.prompt_tokens + completion.usage.completion_tokens
            ids = session.call_ids(self._asked.attempt, index, len(completion.calls))
            named = tuple(RequestedCall(id_, c.name, c.arguments) for id_, c in zip(ids, completion.calls, strict=True))
            answers.append(replace(completion, calls=named))
            return self._record(completion, failures, named, time.perf_counter() - started)

        await session.add_call(self._asked, [], draw)
        return answers[0]

    async def _fetch(self, asked: ChatRequest) -> tuple[Completion, tuple[ParseFailure, ...]]:
        """What the endpoint answers, with what in it is wrong. Raises Refusal where it has not answered."""
        player, meter = self._session.asks, self._session.meter
        choice = None if asked.tool_choice == "auto" else asked.tool_choice
        try:
            completion = await player.pool.chat(
                [{key: message[key] for key in _SENT if key in message} for message in asked.messages],
                Caller(player.timeout_s, meter),
                sampling=self._how(asked),
                tools=[tool.model_dump(exclude_none=True) for tool in asked.tools],
                tool_choice=choice.model_dump() if isinstance(choice, NamedTool) else choice,
                response_format=asked.response_format,
            )
            if not asked.offered:
                return completion, ()
            return await player.text_calls.with_tools(asked.offered).read_turn(completion)
        except EndpointFailure as failure:
            return self._read_failure(failure)
        finally:
            player.usage[self._session.rollout.id] = dict(meter.usage)

    def _record(
        self, completion: Completion, failures: Sequence[ParseFailure], named: Sequence[RequestedCall], sample_s: float
    ) -> Call:
        thought = f"<think>\n{completion.reasoning}\n</think>\n\n" if completion.reasoning else ""
        is_answer = not (named or failures or completion.is_truncated)
        return Call(
            len(self._session.tree.calls),
            [],
            Sample([], [], Finish.LENGTH if completion.is_truncated else Finish.STOP),
            self._asked.messages,
            self._asked.tools,
            thought + completion.text,
            completion.text.strip() if is_answer else None,
            tuple(failures),
            [read_call(call)[0] for call in named],
            [call.id for call in named],
            sample_s,
        )

    def _read_failure(self, failure: EndpointFailure) -> tuple[Completion, tuple[ParseFailure, ...]]:
        """A turn of nothing, which is the model's own doing. Raises Refusal where the endpoint has not been tried."""
        if failure.unit not in (*NoAnswer,):
            words = f"the model's server: {failure.outcome}: {failure.text}"
            self._session.broken = self._session.broken or MissingRewardCause(SAMPLER, words)
            self._session.end(StopReason.INFRA_FAILURE)
            raise Refusal(502, words, code="endpoint_failed") from failure
        is_truncated = failure.unit == NoAnswer.TRUNCATED
        kind = FailureClass.TRUNCATED if is_truncated else FailureClass.EMPTY
        completion = Completion("", (), "length" if is_truncated else "stop", (), Usage())
        return completion, (ParseFailure(kind, failure.text, "", 0, structural=True),)

    def _how(self, asked: ChatRequest) -> SamplingSpec:
        """The agent's own settings but for the seed, and the spec's where it sends none."""
        given, ours, session = asked.model_fields_set, self._session.asks.sampling, self._session
        own: dict[str, Any] = {key: getattr(asked, key) for key in ("temperature", "top_p") if key in given}
        limits = [limit for limit in (asked.limit, ours.max_tokens) if limit is not None]
        extra = {key: getattr(asked, key) for key in ("top_k", "min_p", "parallel_tool_calls") if key in given}
        # Of each call another seed: the same prompt asked twice is meant to be sampled twice.
        seed = derive_seed(session.rollout.seed, "call", len(session.tree.calls)) % (1 << 31)
        return ours.model_copy(
            update={
                **own,
                "max_tokens": min(limits, default=None),
                "seed": seed,
                "stop": asked.stops,
                "extra": ours.extra | extra,
            }
        )


def _show_images(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message with a word in place of each image: what is kept and compared is text."""
    if not isinstance(message.get("content"), list):
        return message
    parts = [
        {"type": "text", "text": f"[image {hashlib.blake2b(str(part).encode(), digest_size=4).hexdigest()}]"}
        if isinstance(part, dict) and part.get("type") == "image_url"
        else part
        for part in message["content"]
    ]
    return {**message, "content": parts}
