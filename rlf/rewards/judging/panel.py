"""The judges of a term: each model a pool of endpoints, asked for its votes unless its reply is known."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakValueDictionary

from rlf.core.identity import derive_seed
from rlf.core.meter import Meter
from rlf.endpoints import EndpointFailure, EndpointSpec, SamplingSpec, TokenLogprob, json_schema_format
from rlf.rewards.judging.cache import ReplyCache, key_of
from rlf.rewards.judging.reply import Unreadable
from rlf.rewards.judging.settings import Cache
from rlf.types import ScoreUsage

if TYPE_CHECKING:
    from rlf.endpoints.pool import EndpointPool

_TOP_LOGPROBS = 20
"""The most that servers of the protocol give."""
_MAX_SEED = 2**31

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """A judge's reply."""

    text: str
    logprobs: tuple[TokenLogprob, ...]
    usage: ScoreUsage


@dataclass(frozen=True, slots=True)
class NoReply:
    """Why a judge gave no reply, and what asking it cost all the same."""

    reason: str
    usage: ScoreUsage


@dataclass(frozen=True, slots=True)
class Question:
    """One request to a judge."""

    messages: Sequence[Mapping[str, Any]]
    schema: Mapping[str, Any] | None
    """JSON Schema that the server holds the reply to."""
    with_logprobs: bool


@dataclass(frozen=True, slots=True)
class Votes(Generic[T]):
    """The result of the readable replies, and the failures of the others."""

    values: Sequence[T]
    failures: Sequence[str]
    usage: ScoreUsage

    @property
    def are_enough(self) -> bool:
        """Whether more than half of the replies could be read."""
        return len(self.values) > len(self.failures)


Asker = Callable[[int], Question]
"""The question for a vote, by its number."""


class Panel:
    """Judges that are connected."""

    def __init__(
        self,
        judges: Mapping[str, Sequence[EndpointSpec]],
        declared: Sequence[EndpointSpec],
        *,
        sampling: SamplingSpec,
        votes: int,
        timeout_s: float,
        cache: Cache | None,
        seed: int,
        meter: Meter | None = None,
    ) -> None:
        """Takes whom to ask and how often.

        Args:
            declared: those of the endpoints that the file names: replies of others are kept under no address.
            meter: counts what asking costs, as it does.
        """
        self._judges, self._declared, self._sampling, self._votes = judges, declared, sampling, votes
        self._timeout_s, self._seed, self._meter = timeout_s, seed, meter
        self._pools: dict[str, EndpointPool] = {}
        self._cache = None if cache is None else ReplyCache(cache)
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        """Looks whether each judge answers. Raises RlfError for one that does not."""
        from rlf.endpoints.pool import open_pool

        async with AsyncExitStack() as stack:
            if self._cache is not None:
                stack.callback(self._cache.close)
            for model, endpoints in self._judges.items():
                self._pools[model] = await open_pool(endpoints)
                stack.push_async_callback(self._pools[model].close)
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """Closes connections and cache."""
        await self._stack.aclose()

    async def vote(self, asker: Asker, read: Callable[[Reply, int], T], *, fresh: bool = False) -> Votes[T]:
        """Every judge's votes, all asked at once.

        Args:
            asker: makes the question of a vote; those of a group differ from vote to vote.
            read: makes a value of a reply to the question of that number, or raises Unreadable.
            fresh: whether judges are asked even where a reply is known.
        """
        questions = [asker(number) for number in range(self._votes)]
        asked = [(model, number) for model in self._pools for number in range(len(questions))]
        replies = await asyncio.gather(
            *(self._find_reply(model, questions[number], number, fresh=fresh) for model, number in asked)
        )
        values, failures, usage = list[T](), list[str](), ScoreUsage()
        for (_, number), reply in zip(asked, replies, strict=True):
            try:
                usage += reply.usage
                if isinstance(reply, NoReply):
                    raise Unreadable(reply.reason)
                values.append(read(reply, number))
            except Unreadable as fault:
                failures.append(str(fault))
        return Votes(values, failures, usage)

    async def _find_reply(self, model: str, question: Question, number: int, *, fresh: bool) -> Reply | NoReply:
        sampling = self._seed_sampling(model, question, number)
        if self._cache is None or fresh:
            return await self._ask_model(model, question, sampling)
        urls = sorted(endpoint.url for endpoint in self._declared if endpoint.model == model)
        key = key_of(
            {"model": model, "urls": urls, "sampling": sampling.body(), "vote": number, "question": asdict(question)}
        )
        async with self._asking.setdefault(key, asyncio.Lock()):  # who asks the same waits for the one reply
            known = await self._cache.get(key)
            if known is not None:
                return Reply(*known, ScoreUsage(num_replies=1, num_cached=1))
            reply = await self._ask_model(model, question, sampling)
            if isinstance(reply, Reply):
                await self._cache.put(key, reply.text, reply.logprobs)
            return reply

    def _seed_sampling(self, model: str, question: Question, number: int) -> SamplingSpec:
        """The sampling with a seed where tokens are drawn, which differs from vote to vote."""
        declared = self._sampling
        if declared.seed is not None:
            return declared.model_copy(update={"seed": declared.seed + number})
        if declared.temperature == 0:
            return declared
        prompt = json.dumps(question.messages, sort_keys=True)
        seed = derive_seed(self._seed, "judge", model, prompt, number) % _MAX_SEED
        return declared.model_copy(update={"seed": seed})

    async def _ask_model(self, model: str, question: Question, sampling: SamplingSpec) -> Reply | NoReply:
        from rlf.endpoints.pool import Caller

        meter = Meter(self._meter)
        try:
            completion = await self._pools[model].chat(
                question.messages,
                Caller(self._timeout_s, meter),
                sampling=sampling,
                response_format=None if question.schema is None else json_schema_format("verdict", question.schema),
                top_logprobs=_TOP_LOGPROBS if question.with_logprobs else None,
            )
        except EndpointFailure as failure:
            return NoReply(f"{failure.outcome}: {failure.text}", _read_usage(meter, num_replies=0))
        return Reply(completion.text, completion.logprobs, _read_usage(meter, num_replies=1))


def _read_usage(meter: Meter, num_replies: int) -> ScoreUsage:
    """The cost of asking, failed and repeated requests included."""
    spent = meter.usage
    return ScoreUsage(
        num_replies=num_replies,
        num_tokens=int(spent.get("prompt_tokens", 0) + spent.get("completion_tokens", 0)),
        cost_usd=meter.cost_usd,
        num_requests=int(spent.get("requests", 0)),
    )
