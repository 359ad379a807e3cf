"""The continuous-batching sampler: one key-value slot a trajectory, rows leave and join at any decode tick.

A trajectory keeps its slot over all its turns, so a new turn feeds its observation tokens only; a group's shared
prompt is fed once. Decoding rows and joining rows share each forward pass.

Two schedules. By the clock, rows join as soon as their tools have returned. The logical one fixes for each row the
tick at which it rejoins (`_LOGICAL_LAG` after it left) and waits for it there, so the make-up of every batch, and
with it every bit of the result, follows from the seed alone.

All model work runs on one thread of its own; the event loop stays free for tools. The driver alone touches the
slots, and only between two bursts of that thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np
import torch

from rlf.engines.local.attention import ragged_layout, using
from rlf.engines.local.draw import draw, uniforms
from rlf.engines.local.model import PolicyModel
from rlf.types.policy import Finish, Sample, SampleRequest, Sampling

_LOGICAL_LAG = 4
"""Ticks between a row's last token and its return, in the logical schedule: the time its tools have for free."""
_LOGICAL_STRIDE = 4
"""Ticks between two points where rows join, in the logical schedule."""


@dataclass(slots=True, eq=False)
class _Row:
    """One open trajectory."""

    id: str
    due: int = 0
    """Tick at which the row wants to go on, or to end."""
    request: SampleRequest | None = None
    """The turn to sample; None while the trajectory's tools run."""
    reply: asyncio.Future[Sample] | None = None
    slot: int | None = None
    context: list[int] = field(default_factory=list)
    """Tokens fed or sampled so far; all but the last sampled one are cached."""
    num_cached: int = 0
    noise: np.ndarray | None = None
    tokens: list[int] = field(default_factory=list)
    """Sampled in this turn."""
    logprobs: list[float] = field(default_factory=list)
    finish: Finish | None = None
    released: bool = False

    def begin(self, request: SampleRequest, reply: asyncio.Future[Sample], max_tokens: int) -> None:
        """Takes the next turn. The context must extend what is cached."""
        known = len(self.context)
        assert list(request.tokens[:known]) == self.context, f"{self.id}: the context does not extend the last turn's"
        if self.noise is None:
            self.noise = uniforms(request.seed, max_tokens)
        self.context += request.tokens[known:]
        self.request, self.reply = request, reply
        self.tokens, self.logprobs, self.finish = [], [], None

    @property
    def pending(self) -> list[int]:
        """Tokens known and not yet cached."""
        return self.context[self.num_cached :]


class Sampler:
    """The local engine's `Policy`. Use it inside one event loop; `close` ends it."""

    def __init__(
        self,
        model: PolicyModel,
        *,
        num_slots: int,
        max_tokens: int,
        logical: bool,
        executor: Executor,
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        self._model = model
        self._cache = model.new_cache(num_slots, max_tokens)
        self._max_tokens = max_tokens
        self._logical = logical
        self._executor = executor
        self._decode = decode
        self._rows: dict[str, _Row] = {}
        self._queue: deque[_Row] = deque()
        self._slots: list[_Row] = []
        self._num_active = 0
        self._tick = 0
        self._changed = asyncio.Event()
        self._driver: asyncio.Task[None] | None = None

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Announces trajectories in their logical order."""
        for id_ in trajectory_ids:
            assert id_ not in self._rows, f"trajectory {id_} is open already"
            self._rows[id_] = row = _Row(id_)
            self._queue.append(row)

    async def sample(self, request: SampleRequest) -> Sample:
        """Samples one turn of an open trajectory."""
        row = self._rows[request.trajectory_id]
        reply: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        row.begin(request, reply, self._max_tokens)
        self._wake()
        return await reply

    def release(self, trajectory_id: str) -> None:
        """Ends a trajectory; its slot is given on when the driver next passes."""
        row = self._rows.get(trajectory_id)
        if row is not None and not row.released:
            row.released = True
            self._wake()

    async def close(self) -> None:
        """Releases every trajectory and waits for the driver to end."""
        for id_ in list(self._rows):
            self.release(id_)
        if self._driver is not None:
            await asyncio.wait([self._driver])

    def _wake(self) -> None:
        self._changed.set()
        if self._driver is None or self._driver.done():
            self._driver = asyncio.get_running_loop().create_task(self._drive(), name="sampler")

    async def _drive(self) -> None:
        try:
            while self._rows:
                await self._step()
        except Exception as error:  # noqa: BLE001 - handed to every trajectory that waits
            self._fail(error)

    async def _step(self) -> None:
        """One round: wait for the rows that are due, let them join or go, decode for a while."""
        self._changed.clear()
        self._end_released()
        self._admit()
        if self._must_wait():
            await self._changed.wait()
            return
        joining = self._take_joining()
        if joining or self._num_active:
            loop = asyncio.get_running_loop()
            finished = await loop.run_in_executor(self._executor, self._burst, joining)
            for row in finished:
                self._deliver(row)
        elif self._logical and self._rows:
            self._tick = max(self._tick, min(row.due for row in self._slots))

    def _fail(self, error: Exception) -> None:
        for row in self._rows.values():
            if row.reply is not None and not row.reply.done():
                row.reply.set_exception(error)
        self._rows.clear()
        self._queue.clear()
        self._slots.clear()
        self._num_active = 0

    def _is_due(self, row: _Row) -> bool:
        return not self._logical or row.due <= self._tick

    def _must_wait(self) -> bool:
        """Whether a row has to be waited for before the next burst."""
        away = self._slots[self._num_active :]
        if self._logical:
            return any(row.request is None and not row.released for row in away if row.due <= self._tick)
        return bool(self._rows) and not self._num_active and not any(row.request for row in away)

    def _end_released(self) -> None:
        """Frees the slots of rows that ended; a row cut short while decoding goes at once."""
        for row in [row for row in self._queue if row.released]:
            self._queue.remove(row)
            del self._rows[row.id]
        ended = [row for row in self._slots if row.released and (self._is_due(row) or row.request is not None)]
        for row in ended:
            self._leave(row)
            last = len(self._slots) - 1
            self._exchange(self._slot_of(row), last)
            self._slots.pop()
            row.slot = None
            del self._rows[row.id]

    def _admit(self) -> None:
        """Gives free slots to queued rows, in their order; they are due at once."""
        while self._queue and len(self._slots) < self._cache.num_slots:
            row = self._queue.popleft()
            row.due, row.slot = self._tick, len(self._slots)
            self._slots.append(row)

    def _take_joining(self) -> list[_Row]:
        away = self._slots[self._num_active :]
        joining = [row for row in away if row.request is not None and not row.released and self._is_due(row)]
        return sorted(joining, key=lambda row: row.due)

    def _deliver(self, row: _Row) -> None:
        reply, row.reply = row.reply, None
        assert reply is not None and row.finish is not None, f"{row.id} was not sampled"
        row.request = None
        if not reply.done():
            reply.set_result(Sample(row.tokens, row.logprobs, row.finish))

    def _slot_of(self, row: _Row) -> int:
        assert row.slot is not None, f"{row.id} holds no slot"
        return row.slot

    def _exchange(self, left: int, right: int) -> None:
        if left == right:
            return
        one, other = self._slots[left], self._slots[right]
        self._cache.swap(left, right, max(one.num_cached, other.num_cached))
        self._slots[left], self._slots[right] = other, one
        one.slot, other.slot = right, left

    def _leave(self, row: _Row) -> None:
        """Moves a decoding row out of the range that decodes."""
        if self._slot_of(row) < self._num_active:
            self._num_active -= 1
            self._exchange(self._slot_of(row), self._num_active)

    # What follows runs on the model's thread.

    def _burst(self, joining: list[_Row]) -> list[_Row]:
        finished: list[_Row] = []
        with torch.inference_mode():
            for _ in range(_LOGICAL_STRIDE if self._logical else 1):
                finished += self._decode_tick(joining)
                joining = []
                if not self._num_active:
                    break
        return finished

    def _decode_tick(self, joining: list[_Row]) -> list[_Row]:
        """Samples one token for each decoding and joining row; returns the rows whose turn ended."""
        self._tick += 1
        decoding = self._slots[: self._num_active]
        leaders, followers = _by_shared_prompt(joining)
        for row in [*leaders, *(follower for follower, _ in followers)]:
            self._exchange(self._slot_of(row), self._num_active)
            self._num_active += 1
        logits_BV = self._forward(decoding, leaders)
        for row in [*decoding, *leaders]:
            row.num_cached = len(row.context)
        for row, leader in followers:
            self._cache.copy(leaders_slot := self._slot_of(leader), self._slot_of(row), leader.num_cached)
            assert leaders_slot < self._num_active, f"{leader.id} does not decode"
            row.num_cached = leader.num_cached
        if followers:
            index = {leader.id: len(decoding) + i for i, leader in enumerate(leaders)}
            sources = [*range(len(decoding) + len(leaders)), *(index[leader.id] for _, leader in followers)]
            logits_BV = logits_BV[torch.tensor(sources, device=logits_BV.device)]
        self._append(self._slots[: self._num_active], logits_BV)
        return self._split_finished()

    def _forward(self, decoding: Sequence[_Row], leaders: Sequence[_Row]) -> torch.Tensor:
        """The next-token logits of decoding rows, then of leading rows: [A + R, V], float32."""
        runs = [row.pending for row in leaders]
        layout = ragged_layout(
            self._cache,
            [row.num_cached for row in decoding],
            [(row.num_cached, len(run)) for row, run in zip(leaders, runs, strict=True)],
        )
        tokens = [row.context[-1] for row in decoding]
        last = list(range(len(decoding)))
        for run in runs:
            tokens += run
            last.append(len(tokens) - 1)
        tokens_1N = torch.tensor([tokens], device=self._cache.device)
        with using(layout):
            hidden_1NH = self._model.hidden(tokens_1N, layout.positions_N[None])
        hidden_NH = hidden_1NH[0]
        if runs:
            hidden_NH = hidden_NH[torch.tensor(last, device=hidden_NH.device)]
        return self._model.logits(hidden_NH).float()

    def _append(self, rows: Sequence[_Row], logits_BV: torch.Tensor) -> None:
        settings = [_request(row).sampling for row in rows]
        for sampling in dict.fromkeys(settings):
            index = [i for i, other in enumerate(settings) if other == sampling]
            part = logits_BV if len(index) == len(rows) else logits_BV[index]
            self._append_drawn([rows[i] for i in index], part, sampling)

    def _append_drawn(self, rows: Sequence[_Row], logits_BV: torch.Tensor, sampling: Sampling) -> None:
        noise = [row.noise[_request(row).num_sampled + len(row.tokens)] for row in rows if row.noise is not None]
        uniforms_B = torch.tensor(noise, dtype=torch.float64, device=logits_BV.device)
        tokens_B, logprobs_B = draw(logits_BV, uniforms_B, sampling)
        for row, token, logprob in zip(rows, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.context.append(token)
            row.finish = self._finish(row, token)

    def _finish(self, row: _Row, token: int) -> Finish | None:
        request = _request(row)
        if token in request.sampling.stop_token_ids:
            return Finish.STOP
        if request.sampling.stop_strings and self._ends_in_stop_string(row, request.sampling.stop_strings):
            return Finish.STOP
        return Finish.LENGTH if len(row.tokens) >= request.max_tokens else None

    def _ends_in_stop_string(self, row: _Row, stop_strings: Sequence[str]) -> bool:
        reach = max(len(stop.encode()) for stop in stop_strings)
        tail = self._decode(row.tokens[-reach:])
        return any(stop in tail for stop in stop_strings)

    def _split_finished(self) -> list[_Row]:
        lag = _LOGICAL_LAG if self._logical else 0
        finished = [row for row in reversed(self._slots[: self._num_active]) if row.finish is not None]
        for row in finished:
            row.due = self._tick + lag
            self._leave(row)
        return finished[::-1]


def _request(row: _Row) -> SampleRequest:
    assert row.request is not None, f"{row.id} has nothing to sample"
    return row.request


def _by_shared_prompt(joining: Sequence[_Row]) -> tuple[list[_Row], list[tuple[_Row, _Row]]]:
    """Splits joining rows into those to feed and (row, leader) pairs that start from the very same prompt."""
    leaders: list[_Row] = []
    followers: list[tuple[_Row, _Row]] = []
    leader_by_prompt: dict[tuple[int, ...], _Row] = {}
    for row in joining:
        prompt = tuple(row.context) if row.num_cached == 0 else None
        if prompt is not None and prompt in leader_by_prompt:
            followers.append((row, leader_by_prompt[prompt]))
            continue
        if prompt is not None:
            leader_by_prompt[prompt] = row
        leaders.append(row)
    return leaders, followers
