"""Answers under way: a request's samples, from its place in the queue to the last token."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlf.apps.serve.agent import AgentAnswer, Json, Report
from rlf.apps.serve.requests import Refusal
from rlf.apps.serve.turns import TurnReader
from rlf.chat.marks import ParsedTurn
from rlf.core.errors import RlfError
from rlf.endpoints.openai import RequestedCall
from rlf.types.policy import Finish, Host, Sample, Sampling

# Counters of a server, in Prometheus' text.

_MAX_NAMES = 100
"""Names of keys that are counted apart: clients choose them."""
_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)


class Metrics:
    """Counters and gauges of one server."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._request_s = 0.0
        self._num_requests = 0
        self._tokens: Counter[str] = Counter()
        self._prompts: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        """Words and value by name."""

    def count_request(self, path: str, status: int, duration_s: float) -> None:
        """Counts a request that is answered."""
        self._requests[path, status] += 1
        self._num_requests += 1
        self._request_s += duration_s
        self._buckets.update(bound for bound in _BOUNDS_S if duration_s <= bound)

    def count_tokens(self, prompt: int, sampled: int) -> None:
        """Counts an answer's tokens."""
        self._tokens.update({"prompt": prompt, "sampled": sampled})

    def count_prompt(self, *, is_continued: bool) -> None:
        """Counts a conversation with earlier turns, by whether their tokens were used again."""
        self._prompts["continued" if is_continued else "rendered"] += 1

    def count_ignored(self, key: str) -> bool:
        """Counts a key of a request that had no effect; whether it is the first of its name."""
        name = key if key in self._ignored or len(self._ignored) < _MAX_NAMES else "other"
        self._ignored[name] += 1
        return self._ignored[name] == 1

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._list_lines()) + "\n"

    def _list_lines(self) -> Iterator[str]:
        requests = {f'path="{path}",status="{status}"': n for (path, status), n in sorted(self._requests.items())}
        yield from _show_family("rlf_requests_total", "counter", "Requests that were answered.", requests)
        yield from _show_family(
            "rlf_tokens_total", "counter", "Tokens of prompts, and tokens sampled.", _label_counts("kind", self._tokens)
        )
        yield from _show_family(
            "rlf_conversations_total",
            "counter",
            "Prompts with earlier turns: their tokens used again, or rendered by the template.",
            _label_counts("prompt", self._prompts),
        )
        yield from _show_family(
            "rlf_ignored_keys_total", "counter", "Keys without effect.", _label_counts("key", self._ignored)
        )
        for name, (words, value) in self.gauges.items():
            yield from _show_family(name, "gauge", words, {"": value()})
        yield from _show_family("rlf_request_seconds", "histogram", "Time of a request, its answer included.", {})
        for bound in _BOUNDS_S:
            yield f'rlf_request_seconds_bucket{{le="{bound}"}} {self._buckets[bound]}'
        yield f'rlf_request_seconds_bucket{{le="+Inf"}} {self._num_requests}'
        yield f"rlf_request_seconds_sum {self._request_s:.6f}"
        yield f"rlf_request_seconds_count {self._num_requests}"


def _label_counts(label: str, counts: Mapping[str, int]) -> dict[str, float]:
    return {f"{label}={json.dumps(value)}": number for value, number in sorted(counts.items())}


def _show_family(name: str, kind: str, words: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """One answer to be sampled."""

    index: int
    tokens: Sequence[int]
    """The prompt."""
    max_tokens: int
    sampling: Sampling
    seed: int
    reader: TurnReader
    decode: Callable[[Sequence[int]], str]
    done: Callable[[Sample, str, Delta, ParsedTurn | None], None] | None = None
    """Takes the whole answer, and its text."""
    play: Callable[[Report], Awaitable[AgentAnswer]] | None = None
    """Plays to the answer with tools, in place of one turn."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The part of an answer that was not shown yet."""

    index: int
    """Of the answer, among those of its request."""
    text: str = ""
    reasoning: str = ""
    calls: tuple[RequestedCall, ...] = ()
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    """Of each token, as it was sampled."""
    tops: Sequence[dict[int, float]] = ()
    finish: str | None = None
    """`stop`, `length` or `tool_calls`; None while it continues."""
    stop: str | None = None
    """The stop string that ended it."""
    report: Json | None = None
    """The actions of an agent."""
    num_sampled: int | None = None
    """Of the tokens; None: all."""


class HostGate:
    """The way to the host: so many answers are sampled or wait, no more."""

    def __init__(self, host: Host, max_queue: int, metrics: Metrics) -> None:
        self.host = host
        self.metrics = metrics
        self._max_open = host.num_slots + max_queue
        self._num_open = 0
        self._mean_s = 1.0
        """Of an answer, lately."""

    @property
    def num_waiting(self) -> int:
        """Answers that wait for others."""
        return max(0, self._num_open - self.host.num_slots)

    @property
    def num_running(self) -> int:
        """Answers that are sampled."""
        return min(self._num_open, self.host.num_slots)

    @contextmanager
    def enter(self, count: int) -> Iterator[None]:
        """Takes places for that many answers. Raises Refusal where there are not so many, or not so many free."""
        if count > self._max_open:
            raise Refusal(400, f"got {count} answers in one request; this server takes at most {self._max_open}")
        if self._num_open + count > self._max_open:
            retry_s = max(1, round(self._mean_s * (self.num_waiting + count) / self.host.num_slots))
            words = f"{self.num_running} answers are being sampled and {self.num_waiting} wait. Try again later."
            raise Refusal(429, words, code="rate_limit_exceeded", retry_s=min(retry_s, 60))
        self._num_open += count
        started = time.perf_counter()
        try:
            yield
        finally:
            self._num_open -= count
            self._mean_s += (time.perf_counter() - started - self._mean_s) / 10


class Answers:
    """The answers to one request, sampled side by side."""

    def __init__(self, gate: HostGate, prepared: Sequence[AnswerRequest], *, live: bool) -> None:
        """Takes what is to be sampled.

        Args:
            live: whether what is sampled is shown as it comes.
        """
        self._gate = gate
        self._live = live
        self._choices = [_Choice(each) for each in prepared]
        self._due, self._ended = _Bell(), _Bell()

    async def whole(self) -> list[Delta]:
        """Every answer, in the order of their indices."""
        if len(self._choices) == 1:  # the usual case, without a task of its own
            await self._sample_choice(self._choices[0])
            return list(self._choices[0].take())
        tasks = [asyncio.create_task(self._sample_choice(choice)) for choice in self._choices]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return [delta for choice in self._choices for delta in choice.take()]

    async def batches(self, flush_s: float, keep_alive_s: float) -> AsyncGenerator[list[Delta]]:
        """New parts of answers, when there is enough of them. Close it, or cancel what reads it, to stop sampling.

        Args:
            flush_s: least time between two.
            keep_alive_s: silence after which an empty one comes.
        """
        tasks = [asyncio.create_task(self._sample_choice(choice)) for choice in self._choices]
        sent_s = time.monotonic()
        try:
            while not all(choice.is_over for choice in self._choices):
                await self._due.wait(min(_MAX_PAUSE_S, keep_alive_s))
                for task in tasks:
                    if task.done() and not task.cancelled():
                        task.result()
                batch = [delta for choice in self._choices for delta in choice.take()]
                if batch or time.monotonic() - sent_s >= keep_alive_s:
                    sent_s = time.monotonic()
                    yield batch
                await self._ended.wait(flush_s)
        finally:
            for task in tasks:
                task.cancel()

    async def _sample_choice(self, choice: _Choice) -> None:
        asked = choice.asked
        try:
            if asked.play is not None:
                choice.played = await asked.play(self._make_report(choice))
                self._gate.metrics.count_tokens(len(asked.tokens), choice.played.num_sampled)
                return
            choice.sample = await self._gate.host.complete(
                asked.tokens,
                asked.max_tokens,
                asked.sampling,
                asked.seed,
                self._make_watch(choice) if self._live else None,
            )
            self._gate.metrics.count_tokens(len(asked.tokens), len(choice.sample.tokens))
        except RlfError as error:
            raise Refusal(503, str(error)) from error
        finally:
            self._due.ring()
            self._ended.ring()

    def _make_report(self, choice: _Choice) -> Report:
        def report(what: Json) -> None:
            if self._live:
                choice.reports.append(what)
                self._due.ring()

        return report

    def _make_watch(self, choice: _Choice) -> Callable[[Sample], None]:
        def watch(sample: Sample) -> None:
            choice.progress = sample
            if choice.num_new(sample) * _STREAMS_PER_TOKEN >= self._gate.num_running or not choice.num_taken:
                self._due.ring()

        return watch


class _Bell:
    """Wakes the waiting task, now or when it starts to wait."""

    def __init__(self) -> None:
        self._is_rung = False
        self._waiting: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Ends the wait."""
        self._is_rung = True
        if self._waiting is not None:
            _end_waiting(self._waiting)

    async def wait(self, limit_s: float) -> None:
        """Returns when it rings, or time is up."""
        if not self._is_rung:
            loop = asyncio.get_running_loop()
            self._waiting = waiting = loop.create_future()
            timer = loop.call_later(limit_s, _end_waiting, waiting)
            try:
                await waiting
            finally:
                self._waiting = None
                timer.cancel()
        self._is_rung = False


def _end_waiting(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class _Choice:
    """One of them."""

    def __init__(self, asked: AnswerRequest) -> None:
        self.asked = asked
        self.progress: Sample | None = None
        """The tokens so far, while more are sampled."""
        self.sample: Sample | None = None
        """The whole, when it is over."""
        self.reports: list[Json] = []
        """Actions of an agent that were not taken yet."""
        self.played: AgentAnswer | None = None
        """The agent's answer."""
        self.is_over = False
        """Whether all of it was taken."""
        self.num_taken = 0
        """Tokens."""
        self._text = _Text(asked.decode)

    def take(self) -> Iterator[Delta]:
        """The parts that are new."""
        if self.is_over:
            return
        reports, self.reports = self.reports, []
        yield from (Delta(self.asked.index, report=report) for report in reports)
        if self.played is not None:
            yield self._finish_play(self.played)
        elif self.sample is not None:
            yield self._last_delta(self.sample)
        elif self.progress is not None and self.num_new(self.progress):
            yield self._grow_delta(self.progress)

    def num_new(self, progress: Sample) -> int:
        """Tokens that were sampled and not taken yet."""
        return len(progress.logprobs) - self.num_taken

    def _grow_delta(self, progress: Sample) -> Delta:
        # The lists grow on another thread: a token is whole when its log-probability is there.
        start, end = self.num_taken, len(progress.logprobs)
        if self.asked.sampling.num_top is not None:
            end = min(end, len(progress.tops))
        tokens = progress.tokens[start:end]
        piece = self.asked.reader.advance(self._text.add(tokens))
        logprobs, tops = progress.logprobs[start:end], progress.tops[start:end]
        self.num_taken = end
        return Delta(self.asked.index, piece.text, piece.reasoning, (), tokens, logprobs, [dict(t) for t in tops])

    def _finish_play(self, played: AgentAnswer) -> Delta:
        self.is_over = True
        return Delta(
            self.asked.index,
            played.text,
            played.reasoning,
            played.calls,
            played.tokens,
            played.logprobs,
            finish=played.finish,
            report=played.report,
            num_sampled=played.num_sampled,
        )

    def _last_delta(self, sample: Sample) -> Delta:
        start = self.num_taken
        text = self.asked.decode(sample.tokens)
        truncated = sample.finish is Finish.LENGTH
        piece, parsed = self.asked.reader.finish(text, truncated=truncated)
        delta = Delta(
            self.asked.index,
            piece.text,
            piece.reasoning,
            piece.calls,
            sample.tokens[start:],
            sample.logprobs[start:],
            [dict(top) for top in sample.tops[start:]],
            "tool_calls" if piece.calls else sample.finish.value,
            self.asked.reader.stop_of(text),
        )
        self.is_over = True
        if self.asked.done is not None:
            self.asked.done(sample, text, delta, parsed)
        return delta


class _Text:
    """The text of tokens as they come, without decoding all of them each time."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._settled = ""
        self._open: list[int] = []
        """Tokens whose text may still change."""

    def add(self, tokens: Sequence[int]) -> str:
        """The whole text; its end may be a part of a character, shown as U+FFFD."""
        self._open += tokens
        text = self._decode(self._open)
        if len(self._open) > _WINDOW and not text.endswith("\ufffd"):
            self._settled += text
            self._open = []
            return self._settled
        return self._settled + text


_WINDOW = 12
"""Tokens that are decoded again and again."""
_STREAMS_PER_TOKEN = 2
"""A chunk has one token for so many answers that are sampled: the more there are, the larger are their chunks."""
_MAX_PAUSE_S = 1.0
"""Silence after which what is there is sent, however little it is."""
