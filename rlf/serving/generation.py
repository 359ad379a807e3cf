"""Answers under way: a request's samples, from its place in the queue to the last token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlf.chat.parsed import Parsed
from rlf.core.errors import RlfError
from rlf.endpoints import RequestedCall
from rlf.serving.metrics import Metrics
from rlf.serving.refusal import Refusal
from rlf.serving.turns import TurnReader
from rlf.types.policy import Finish, Host, Sample, Sampling


@dataclass(frozen=True, slots=True)
class Prepared:
    """One answer to be sampled."""

    index: int
    tokens: Sequence[int]
    """The prompt."""
    max_tokens: int
    sampling: Sampling
    seed: int
    reader: TurnReader
    decode: Callable[[Sequence[int]], str]
    done: Callable[[Sample, Delta, Parsed | None], None] | None = None
    """Takes the whole answer."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What an answer says beyond what was shown of it."""

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
    """`stop`, `length` or `tool_calls`; None while it goes on."""
    stop: str | None = None
    """The stop string that ended it."""


class Gate:
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
        """A place for so many answers. Raises Refusal where there is none."""
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

    def __init__(self, gate: Gate, prepared: Sequence[Prepared], *, live: bool) -> None:
        """Takes what is to be sampled.

        Args:
            live: whether what is sampled is shown as it comes.
        """
        self._gate = gate
        self._live = live
        self._choices = [_Choice(each) for each in prepared]
        self._changed = asyncio.Event()

    async def whole(self) -> list[Delta]:
        """Every answer, in the order of their indices."""
        return [delta async for batch in self.batches(0, None) for delta in batch]

    async def batches(self, flush_s: float, keep_alive_s: float | None) -> AsyncGenerator[list[Delta]]:
        """What is new, whenever something is. Close it, or cancel what reads it, to stop sampling.

        Args:
            flush_s: least time between two.
            keep_alive_s: silence after which an empty one comes; None: any.
        """
        tasks = [asyncio.create_task(self._sample(choice)) for choice in self._choices]
        try:
            while not all(choice.is_over for choice in self._choices):
                silent = not await self._wait(keep_alive_s)
                for task in tasks:
                    if task.done() and not task.cancelled():
                        task.result()
                if silent:
                    yield []
                    continue
                self._changed.clear()
                batch = [delta for choice in self._choices if (delta := choice.take()) is not None]
                if batch:
                    yield batch
                if flush_s and not all(choice.sample for choice in self._choices):
                    await asyncio.sleep(flush_s)
        finally:
            for task in tasks:
                task.cancel()

    async def _wait(self, limit_s: float | None) -> bool:
        """Waits for something new; whether it came in time."""
        try:
            await asyncio.wait_for(self._changed.wait(), limit_s)
        except TimeoutError:
            return False
        return True

    async def _sample(self, choice: _Choice) -> None:
        asked = choice.asked
        try:
            choice.sample = await self._gate.host.complete(
                asked.tokens, asked.max_tokens, asked.sampling, asked.seed, self._watch(choice) if self._live else None
            )
            self._gate.metrics.count_tokens(len(asked.tokens), len(choice.sample.tokens))
        except RlfError as error:
            raise Refusal(503, str(error)) from error
        finally:
            self._changed.set()

    def _watch(self, choice: _Choice) -> Callable[[Sample], None]:
        def watch(sample: Sample) -> None:
            choice.progress = sample
            self._changed.set()

        return watch


class _Choice:
    """One of them."""

    def __init__(self, asked: Prepared) -> None:
        self.asked = asked
        self.progress: Sample | None = None
        """What was sampled so far, while it is."""
        self.sample: Sample | None = None
        """The whole, when it is over."""
        self.is_over = False
        """Whether all of it was taken."""
        self._num_taken = 0
        self._text = _Text(asked.decode)

    def take(self) -> Delta | None:
        """What is new; None for nothing."""
        if self.is_over:
            return None
        if self.sample is not None:
            return self._finish(self.sample)
        if self.progress is None or len(self.progress.logprobs) == self._num_taken:
            return None
        # The lists grow on another thread: a token is whole when its log-probability is there.
        start, end = self._num_taken, len(self.progress.logprobs)
        if self.asked.sampling.num_top is not None:
            end = min(end, len(self.progress.tops))
        tokens = self.progress.tokens[start:end]
        piece = self.asked.reader.advance(self._text.add(tokens))
        logprobs, tops = self.progress.logprobs[start:end], self.progress.tops[start:end]
        self._num_taken = end
        return Delta(self.asked.index, piece.text, piece.reasoning, (), tokens, logprobs, [dict(t) for t in tops])

    def _finish(self, sample: Sample) -> Delta:
        start = self._num_taken
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
            self.asked.done(sample, delta, parsed)
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


_WINDOW = 32
"""Tokens that are decoded again and again."""
