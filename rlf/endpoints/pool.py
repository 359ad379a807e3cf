"""Several endpoints of one model as one: least-loaded routing, limits, retries on the next best, accounting.

An endpoint that fails rests for a while, longer each time; whoever needs one takes the first that is rested and least
busy. So fail-over, back-off, `Retry-After` and the probe of an endpoint that may be back are one rule.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from rlf.core import RlfError
from rlf.core.clocks import Deadline, clock, waiting_for
from rlf.core.meter import Meter
from rlf.core.redact import Redactor
from rlf.endpoints.attribution import KEY_REFUSED
from rlf.endpoints.guard import AddressGuard, trusted_hosts
from rlf.endpoints.http import HttpClient, HttpRequest
from rlf.endpoints.openai import (
    ASKED,
    EVENTS,
    Completion,
    Images,
    StreamedChat,
    image_of,
    read_answer,
    read_chat,
    read_completion,
    read_images,
    refuse_error,
)
from rlf.endpoints.spec import (
    EndpointFailure,
    EndpointSpec,
    SamplingSpec,
    Usage,
    UsageReport,
    read_usage,
    request_failure,
    unusable,
    usage_of_error,
)
from rlf.types import Image, Outcome

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 64_000_000
"""Of one answer, decompressed: some images as base64."""
_MAX_ATTEMPTS = 4
"""Requests for one answer, when there is one endpoint; each further endpoint allows one more."""
_MOST_UNUSABLE = 2 * _MAX_ATTEMPTS
"""Answers in a row that refuse or make no sense, after which what answers is not waited for."""
_LASTING_S, _FIRST_LASTING_S = 30.0, 1.0
"""How long they have come by then; the second where none could ever be used. A host that restarts a server behind it,
or renews what it knows of keys, refuses for seconds."""
_FIRST_REST_S = 0.25
"""Rest after a first failure; it doubles with each further one."""
_MAX_REST_S = 60.0
"""Longest rest, whatever `Retry-After` says."""
_DEFAULT_SAMPLING = SamplingSpec()

_MINUTE_S = 60.0
_OPENING_S = 10.0
_NO_LIST = frozenset({404, 405, 429})
"""Statuses by which a host that works may refuse to list its models."""

T = TypeVar("T")
Reader: TypeAlias = Callable[[Mapping[str, Any], Usage], T]
"""Makes a value of an answer and of what it used up."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: how long it has, where what it spends is counted, and what stands still while it waits its turn."""

    deadline_s: float
    """Time for all attempts together. Waiting for an endpoint's slot or pace is queue time, and not counted."""
    meter: Meter = field(default_factory=Meter)
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while the request waits in a queue."""
    watch: Callable[[str], None] | None = None
    """Takes the text of a chat so far, as it comes; None: answers come as a whole."""


class _Deadline:
    """When a caller's time is up; later by as long as it waits its turn, or rlf is stopped."""

    __slots__ = ("_own", "caller")

    def __init__(self, caller: Caller) -> None:
        self.caller, self._own = caller, Deadline(caller.deadline_s)

    @property
    def left_s(self) -> float:
        return self._own.at - clock.now()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        with self._own.waiting(), self.caller.waiting():
            yield


class EndpointPool:
    """Asks whichever endpoint is best. Made outside of a loop or in it; serves one loop, and `close` ends it."""

    def __init__(self, specs: Sequence[EndpointSpec]) -> None:
        """Reads the keys. Raises RlfError where the environment lacks one."""
        assert specs, "a pool without endpoints"
        self._endpoints = [_Endpoint(spec) for spec in specs]
        self._random = random.Random(0)
        self._num_unusable, self._unusable_since, self._lasting_s = 0, 0.0, _FIRST_LASTING_S
        """Answers since the last that could be used, when the first of them came, how long such are borne with."""

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        caller: Caller,
        *,
        sampling: SamplingSpec = _DEFAULT_SAMPLING,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | Mapping[str, Any] | None = None,
        response_format: Mapping[str, Any] | None = None,
        top_logprobs: int | None = None,
    ) -> Completion:
        """The next message of a conversation.

        Args:
            messages: in the OpenAI form; see `text_part` and `image_part` for those with images.
            caller: whose deadline and meter count.
            tools: in the OpenAI form.
            tool_choice: in the OpenAI form; `none` where the tools may not be called any more.
            response_format: e.g. from `json_schema_format`.
            top_logprobs: how many of the likeliest tokens come with each sampled one; None for no logprobs at all.

        Raises:
            EndpointFailure: of the last attempt; GONE where waiting is in vain.
        """
        body: dict[str, Any] = {"messages": list(messages), **sampling.body()}
        asked = {"tools": list(tools) or None, "tool_choice": tool_choice, "response_format": response_format}
        body |= {key: value for key, value in asked.items() if value is not None}
        if top_logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": top_logprobs}
        return (await self._ask_one("/chat/completions", body, read_chat, _Deadline(caller)))[1]

    async def complete(self, prompt: str, caller: Caller, *, sampling: SamplingSpec = _DEFAULT_SAMPLING) -> Completion:
        """The continuation of a text, by `/completions`. Arguments and failures as `chat`."""
        body = {"prompt": prompt, **sampling.body()}
        return (await self._ask_one("/completions", body, read_completion, _Deadline(caller)))[1]

    async def images(self, prompt: str, caller: Caller, *, extra: Mapping[str, Any] | None = None) -> Images:
        """Images made from a text, by `/images/generations`. Arguments and failures as `chat`.

        Args:
            extra: further keys of the body: `size`, `n`, `quality`, ... in the server's words. A key that is None is
                left out: `response_format: null` for servers that refuse it.
        """
        body = {"prompt": prompt, "response_format": "b64_json", **(extra or {})}
        body = {key: value for key, value in body.items() if value is not None}
        deadline = _Deadline(caller)
        endpoint, (drawn, usage) = await self._ask_one("/images/generations", body, read_images, deadline)
        return Images(await endpoint.fetch(drawn, deadline.left_s), usage)

    async def check(self, *, deadline_s: float) -> tuple[EndpointFailure | None, ...]:
        """Why each endpoint cannot be used; None for one that answers, even without a list of models."""
        return tuple(await asyncio.gather(*(endpoint.check(deadline_s) for endpoint in self._endpoints)))

    async def close(self) -> None:
        """Closes every connection."""
        for endpoint in self._endpoints:
            await endpoint.client.close()

    async def _ask_one(
        self, path: str, body: Mapping[str, Any], read: Reader[T], deadline: _Deadline
    ) -> tuple[_Endpoint, T]:
        """The answer, and the endpoint that gave it."""
        last: EndpointFailure | None = None
        num_left = _MAX_ATTEMPTS + len(self._endpoints) - 1
        while num_left:
            endpoint = await self._wait_for_rested(deadline)
            if endpoint is None:
                break
            try:
                with waiting_for(f"a request to {endpoint.spec.place}"):
                    answer = await endpoint.ask(path, body, read, deadline)
                self._num_unusable, self._lasting_s = 0, _LASTING_S
                return endpoint, answer
            except _Resting:
                continue
            except EndpointFailure as failure:
                num_left -= 1
                if failure.unit is not None:  # the model's own, which said nothing
                    deadline.caller.meter.add({failure.unit: 1})
                    self._num_unusable, self._lasting_s = 0, _LASTING_S
                if failure.is_unusable:
                    self._note_unusable(failure)
                if not failure.may_pass and (len(self._endpoints) == 1 or not failure.is_unusable):
                    raise
                last = failure
                logger.debug("endpoint %s: %s", endpoint.spec.place, failure.text)
        best = min(self._endpoints, key=lambda endpoint: endpoint.rest_s)
        no_time = EndpointFailure(Outcome.TIMEOUT, "no time was left for a request to the endpoint")
        raise last or best.last_failure or no_time

    def _note_unusable(self, last: EndpointFailure) -> None:
        """Raises EndpointFailure once nothing else has come for so long that it will not."""
        self._unusable_since = self._unusable_since if self._num_unusable else monotonic()
        self._num_unusable += 1
        has_lasted = monotonic() - self._unusable_since >= self._lasting_s and self._num_unusable >= _MOST_UNUSABLE
        if has_lasted and all(each.last_failure and each.last_failure.is_unusable for each in self._endpoints):
            places = ", ".join(each.spec.place for each in self._endpoints)
            text = f"none of {self._num_unusable} answers of {places} can be used, the last: {last.text}"
            fix = "Correct `url`, `model` or the key, or look at what runs there"
            raise EndpointFailure(Outcome.GONE, f"{text}. {fix}", status=last.status) from last

    async def _wait_for_rested(self, deadline: _Deadline) -> _Endpoint | None:
        """The best endpoint, once it is rested; None when none is before the deadline."""
        while True:
            best = min(self._endpoints, key=lambda endpoint: (endpoint.rest_s, endpoint.pause_s, endpoint.load))
            pause_s = best.rest_s
            if pause_s >= deadline.left_s:
                return None
            if not pause_s:
                return best
            await asyncio.sleep(pause_s * self._random.uniform(1.0, 1.2))


async def open_pool(specs: Sequence[EndpointSpec]) -> EndpointPool:
    """The endpoints as one. Raises RlfError when a key is missing or refused, or none of them can be used."""
    async with AsyncExitStack() as stack:
        pool = EndpointPool(specs)
        stack.push_async_callback(pool.close)
        failures = await pool.check(deadline_s=_OPENING_S)
        found = [f"{spec.place}: {failure.text}" for spec, failure in zip(specs, failures, strict=True) if failure]
        refused = any(failure is not None and failure.status in KEY_REFUSED for failure in failures)
        if len(found) < len(specs) and not refused:
            for line in found:
                logger.warning("endpoint %s; requests go to the others", line)
            stack.pop_all()
            return pool
    redact = Redactor(os.environ, declared=[spec.model_dump(mode="json") for spec in specs]).text
    if refused:
        raise RlfError(redact(f"an endpoint refused the key: {'; '.join(found)}. Set it to one that is accepted."))
    raise RlfError(redact(f"no endpoint can be used: {'; '.join(found)}. Start the server, or correct `url`."))


class _Resting(Exception):
    """The endpoint failed others while a request waited its turn: it rests, and another one may be better."""


class _Endpoint:
    """One endpoint: its permits, its pace, its rest."""

    def __init__(self, spec: EndpointSpec) -> None:
        self.spec = spec
        self.last_failure: EndpointFailure | None = None
        self._headers = spec.request_headers()
        guard = AddressGuard(trusted_hosts(spec.url))
        self.client = HttpClient(guard, max_connections=spec.max_concurrency, max_bytes=MAX_ANSWER_BYTES)
        self._permits = asyncio.Semaphore(spec.max_concurrency)
        self._pace = _Pace(spec.requests_per_minute)
        self._num_under_way = 0
        self.failures_in_a_row = 0
        self._failed_at = 0.0
        self._rested_at = 0.0

    @property
    def rest_s(self) -> float:
        """Time until it may be asked again; 0 for now."""
        return max(self._rested_at - monotonic(), 0.0)

    @property
    def pause_s(self) -> float:
        """Time until its pace lets another request begin; 0 for now."""
        return max(self._pace.next_at - monotonic(), 0.0)

    @property
    def load(self) -> float:
        """Requests that run or wait, as a share of what may run."""
        return self._num_under_way / self.spec.max_concurrency

    async def ask(self, path: str, body: Mapping[str, Any], read: Reader[T], deadline: _Deadline) -> T:
        """One request, from its turn in the queue to its answer. Raises _Resting where it may not be asked by then."""
        async with self._wait_for_room(deadline):
            started = monotonic()
            limit_s = min(self.spec.timeout_s, deadline.left_s)
            try:
                value = await self._send_request(path, body, read, limit_s, deadline.caller)
            except EndpointFailure as failure:
                out_of_time = failure.outcome is Outcome.TIMEOUT and limit_s < self.spec.timeout_s
                # A server that refuses everything answers soonest: without a rest all requests would go to it.
                if (failure.may_pass or failure.is_unusable) and not out_of_time:
                    self._start_rest(failure, started)
                raise
            self.failures_in_a_row = 0
            return value

    async def check(self, deadline_s: float) -> EndpointFailure | None:
        """Why the endpoint cannot be used; None for one that answers, even without a list of models.

        Many hosts list their models to anybody, so that a list proves no key. Where it does not, a chat without
        messages is asked for: a host judges the key before the body, and has nothing to answer. It is asked for too
        where the list is no JSON, as of a web site that answers whatever it is asked with a page.
        """

        async def fault_of(request: HttpRequest) -> EndpointFailure | None:
            try:
                read_answer((await self.client.send(request, deadline_s=deadline_s)).body)
            except EndpointFailure as failure:
                return request_failure(failure, self.spec)
            return None

        listing = f"{self.spec.url}/models"
        fault = await fault_of(HttpRequest("GET", listing, self._headers))
        is_page = fault is not None and fault.status == 200
        if fault is not None and not is_page and fault.status not in _NO_LIST | KEY_REFUSED:
            return fault
        if not self.spec.credentials and not is_page:
            return fault if _refuses_key(fault) else None
        if fault is None and _refuses_key(await fault_of(HttpRequest("GET", listing))):
            return None
        body = json.dumps({"model": self.spec.model, "messages": [], "max_tokens": 1}).encode()
        address = f"{self.spec.url}/chat/completions"
        fault = await fault_of(HttpRequest("POST", address, self._headers, body, repeatable=True))
        return fault if _refuses_key(fault) or (is_page and fault is not None and fault.status == 200) else None

    async def _send_request(
        self, path: str, body: Mapping[str, Any], read: Reader[T], limit_s: float, caller: Caller
    ) -> T:
        """One request. It is counted whatever its outcome, and its cost as soon as an answer names one."""
        stream = None if caller.watch is None else StreamedChat(caller.watch)
        data = json.dumps({"model": self.spec.model, **body, **(ASKED if stream is not None else {})}).encode()
        watch = None if stream is None else stream.feed
        request = HttpRequest("POST", self.spec.url + path, self._headers, data, repeatable=True, watch=watch)
        meter = caller.meter
        meter.add({"requests": 1})
        reported = UsageReport()
        try:
            response = await self.client.send(request, deadline_s=limit_s)
            if stream is not None and response.content_type == EVENTS:
                answer = stream.answer()
            else:  # some servers stream nothing
                answer = read_answer(response.body)
            reported = read_usage(answer)
            refuse_error(answer)
            return read(answer, self.spec.prices.of(reported))
        except EndpointFailure as failure:
            if failure.body:
                reported = usage_of_error(failure.body)
            raise request_failure(failure, self.spec) from failure
        finally:
            if reported.is_known:
                meter.add(self.spec.prices.of(reported).by_unit())
            else:
                meter.add({"requests_without_usage": 1})
            if reported.is_absurd:
                meter.add({"absurd_usage": 1})
                logger.warning("endpoint %s: it reports impossible usage; it is not counted", self.spec.place)

    async def fetch(self, drawn: Sequence[Image | str], limit_s: float) -> tuple[Image, ...]:
        """The files of an answer; those that are addresses are read, without the endpoint's key."""

        async def one(item: Image | str) -> Image:
            if isinstance(item, Image):
                return item
            try:
                return image_of((await self.client.send(HttpRequest("GET", item), deadline_s=limit_s)).body)
            except EndpointFailure as failure:
                raise unusable(f"an image at an address that cannot be read: {failure.text}") from failure

        return tuple(await asyncio.gather(*map(one, drawn)))

    @asynccontextmanager
    async def _wait_for_room(self, deadline: _Deadline) -> AsyncIterator[None]:
        """Room within the endpoint's own limits. Waiting for it is no part of the deadline."""
        self._num_under_way += 1
        try:
            async with AsyncExitStack() as stack:
                if self._permits.locked() or self.pause_s:
                    with deadline.standing_still():
                        await stack.enter_async_context(self._permits)
                        if self.rest_s:
                            raise _Resting
                        await self._pace.wait()
                else:
                    await stack.enter_async_context(self._permits)
                    await self._pace.wait()
                yield
        finally:
            self._num_under_way -= 1

    def _start_rest(self, failure: EndpointFailure, started: float) -> None:
        """Lets the endpoint rest. Requests that were under way together and fail together count as one failure."""
        now = monotonic()
        self.failures_in_a_row += started >= self._failed_at
        self._failed_at = now
        self.last_failure = failure
        pause_s = failure.retry_after_s
        if pause_s is None:
            pause_s = _FIRST_REST_S * 2.0 ** min(self.failures_in_a_row - 1, 10)
        self._rested_at = max(self._rested_at, now + min(pause_s, _MAX_REST_S))


class _Pace:
    """At most so many requests begin within any minute."""

    def __init__(self, per_minute: int | None) -> None:
        self._per_minute = per_minute
        self._begun: deque[float] = deque(maxlen=per_minute)

    @property
    def next_at(self) -> float:
        """When the next request may begin; in the past where it may at once."""
        is_full = self._per_minute is not None and len(self._begun) == self._per_minute
        return self._begun[0] + _MINUTE_S if is_full else 0.0

    async def wait(self) -> None:
        """Takes the next turn, and waits for it."""
        if self._per_minute is None:
            return
        now = monotonic()
        begin = max(now, self.next_at)
        self._begun.append(begin)
        await asyncio.sleep(begin - now)


def _refuses_key(fault: EndpointFailure | None) -> bool:
    return fault is not None and fault.status in KEY_REFUSED
