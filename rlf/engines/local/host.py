"""The policy host: a model and its continuous-batching sampler. No trainer is needed around it.

A conversation keeps one key-value slot over all its turns, so a new turn feeds its observation tokens only. Rows leave
and join at any decode tick. Three schedules: by the clock, rows join as soon as their tools have returned; the
invariant one goes by the clock too and computes every row in shapes of its own, so that its bits do not depend on the
batch; the logical one, which takes its place where kernels do not allow that, fixes for each row the tick at which it
rejoins (`_LOGICAL_LAG` after it left) and waits for it there, so that the make-up of every batch, and with it every bit
of the result, follows from the seed alone.

All model work runs on one thread of its own; the event loop stays free for tools. The driver alone touches the
slots, and only between two bursts of that thread.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import torch

from rlf.core.errors import RlfError
from rlf.engines.local.attention import AttentionRow, Slots
from rlf.engines.local.decode import Decoder, is_invariant
from rlf.engines.local.model import PolicyModel, split
from rlf.spec.models import Schedule
from rlf.types.policy import Sample, SampleRequest, Sampling, Watch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")

_LOGICAL_LAG = 4
"""Ticks between a row's last token and its return, in the logical schedule: the time its tools have for free."""
_LOGICAL_STRIDE = 4
"""Ticks between two points where rows join, in the logical schedule."""


class PolicyHost:
    """Plays any number of conversations at once, each with its own sampling settings: the rollout loop's `Policy`.

    Use it inside one event loop, as an async context manager or until `close`.
    """

    takes_forms: ClassVar = True
    """Whether it samples what `Sampling.form` says."""

    def __init__(
        self,
        model: PolicyModel,
        decode: Callable[[Sequence[int]], str],
        *,
        num_slots: int,
        max_tokens: int | None = None,
        schedule: Schedule = Schedule.CLOCK,
        may_wait: bool = True,
        threads: int = 1,
    ) -> None:
        """Takes the model; the cache is reserved when something is sampled.

        Args:
            decode: text of tokens, to look for stop strings.
            num_slots: conversations sampled at once; further open ones wait in their order.
            max_tokens: of a whole conversation, for which the cache is reserved; None: it grows as it is needed.
            schedule: when rows rejoin the batch.
            may_wait: whether all may wait for one, as the logical schedule does where there is no invariant one.
            threads: CPU cores of one operation.

        Raises:
            RlfError: this machine has no invariant schedule, and nothing may wait.
        """
        self.model = model
        cache = model.new_cache(0, 0) if max_tokens is None else model.new_cache(num_slots, max_tokens)
        self._slots = Slots(cache, num_slots)
        self._max_tokens = max_tokens or 0
        self._thread = ThreadPoolExecutor(1, "rlf-model", initializer=torch.set_num_threads, initargs=(threads,))
        if schedule is Schedule.INVARIANT and not self._thread.submit(is_invariant, model).result():
            if not may_wait:
                raise RlfError(
                    f"rollout.schedule: got invariant; on this machine's {model.device} the numbers of a row depend on "
                    "the other rows of its batch, and neither agents nor late groups are waited for. Write clock."
                )
            schedule = Schedule.LOGICAL
        self.schedule = schedule
        """As it is: `logical` also where that takes the place of `invariant`."""
        self._logical = schedule is Schedule.LOGICAL
        self._decoder = Decoder(model, self._slots, decode, invariant=schedule is Schedule.INVARIANT)
        self._rows: dict[str, AttentionRow] = {}
        self._num_open = 0
        self._queue: deque[AttentionRow] = deque()
        self._tick = 0
        self._bursting = False
        self._changed = asyncio.Event()
        self._driver: asyncio.Task[None] | None = None
        self._completion = itertools.count()
        self.held_s = 0.0
        """Time that the logical schedule held rows back that could sample, while others' tools ran."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def max_tokens(self) -> int:
        """Longest prompt and completion together that the model was made for."""
        return int(getattr(self.model.config, "max_position_embeddings", 0) or 1 << 30)

    def end_tokens(self, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
        """Tokens that end a turn, by the model's generation configuration and its tokenizer."""
        settings = self.model.full.generation_config
        ends = settings.eos_token_id if settings else None
        listed = ends if isinstance(ends, list) else [ends]
        return tuple({token for token in (*listed, tokenizer.eos_token_id) if token is not None})

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Announces trajectories in their logical order."""
        for id_ in trajectory_ids:
            assert id_ not in self._rows, f"trajectory {id_} is open already"
            self._rows[id_] = row = AttentionRow(id_)
            self._queue.append(row)
            self._num_open += 1

    @property
    def num_slots(self) -> int:
        """Conversations that are sampled at once."""
        return self._slots.num_slots

    async def sample(self, request: SampleRequest, watch: Watch | None = None) -> Sample:
        """Samples one turn of an open trajectory."""
        reply: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        row = self._rows[request.trajectory_id]
        row.begin(request, reply, self._max_tokens)
        row.watch = watch
        self._wake()
        return await reply

    def release(self, trajectory_id: str) -> None:
        """Ends a trajectory. Its slot goes to the next one; after the last one the host is in its first state."""
        row = self._rows.get(trajectory_id)
        if row is None or row.released:
            return
        row.released = True
        self._num_open -= 1
        if not self._num_open and not self._bursting:
            self._reset()
        self._wake()

    async def complete(
        self, tokens: Sequence[int], max_tokens: int, sampling: Sampling, seed: int, watch: Watch | None = None
    ) -> Sample:
        """Samples a conversation of one turn."""
        id_ = f"completion/{next(self._completion)}"
        self.open([id_])
        try:
            return await self.sample(SampleRequest(id_, tokens, max_tokens, sampling, seed), watch)
        finally:
            self.release(id_)

    def change_weights(self, work: Callable[[], T], version: int) -> asyncio.Future[T]:
        """Runs work that changes the weights on the model's thread, between two ticks.

        Args:
            version: updates that the policy has seen then; recorded with each token where `record_versions` was called.
        """
        changing = asyncio.get_running_loop().run_in_executor(self._thread, work)
        if self._decoder.version is not None:  # of one thread: no tick comes between
            self._thread.submit(setattr, self._decoder, "version", version)
        return changing

    def record_versions(self, version: int) -> None:
        """Records with each token how many updates the policy has seen, as many as `version` so far."""
        self._decoder.version = version

    async def close(self) -> None:
        """Releases every trajectory and waits for the driver and the thread to end."""
        for id_ in list(self._rows):
            self.release(id_)
        if self._driver is not None:
            await asyncio.wait([self._driver])
        self._thread.shutdown(wait=True)

    def _reset(self) -> None:
        self._rows.clear()
        self._queue.clear()
        self._slots.clear()
        self._num_open = self._tick = 0

    def _wake(self) -> None:
        self._changed.set()
        if self._rows and (self._driver is None or self._driver.done()):
            self._driver = asyncio.get_running_loop().create_task(self._drive(), name="sampler")

    async def _drive(self) -> None:
        try:
            while self._rows:
                await self._advance()
        except Exception as error:  # noqa: BLE001 - raised in every trajectory that waits
            replies = [row.reply for row in self._rows.values()]
            self._reset()
            for reply in replies:
                if reply is not None and not reply.done():
                    reply.set_exception(error)

    async def _advance(self) -> None:
        """One round: rows that ended go, rows that are due join, all that can decode do so for a while."""
        self._changed.clear()
        self._free_released()
        self._admit()
        if self._must_wait():
            await self._wait()
            return
        joining = self._take_joining()
        if joining or self._slots.active:
            for row in await self._burst(joining):
                row.deliver()
            for row in self._slots.active:
                row.show()
        elif self._slots.rows:
            self._tick = min(row.due for row in self._slots.rows)

    async def _wait(self) -> None:
        holds_back = bool(self._slots.active) or any(row.request for row in self._slots.away)
        started_s = time.perf_counter()
        await self._changed.wait()
        if holds_back:
            self.held_s += time.perf_counter() - started_s

    async def _burst(self, joining: list[AttentionRow]) -> list[AttentionRow]:
        self._bursting = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._decode, joining)
        finally:
            self._bursting = False

    def _decode(self, joining: list[AttentionRow]) -> list[AttentionRow]:
        """Runs ticks on the model's thread, up to the next point where rows may join."""
        finished: list[AttentionRow] = []
        for _ in range(_LOGICAL_STRIDE if self._logical else 1):
            ended = self._decoder.tick(joining)
            self._tick += 1
            joining = []
            for row in ended:
                row.due = self._tick + (_LOGICAL_LAG if self._logical else 0)
            finished += ended
            if not self._slots.active:
                break
        return finished

    def _must_wait(self) -> bool:
        """Whether nothing may be decoded before some row has its next tokens."""
        if self._logical:
            return any(row.request is None and not row.released and row.due <= self._tick for row in self._slots.away)
        return bool(self._rows) and not self._slots.active and not any(row.request for row in self._slots.away)

    def _free_released(self) -> None:
        """Frees the slots of rows that ended: when they are due, or at once if they were cut short while sampling."""
        for row in [row for row in self._queue if row.released]:
            self._queue.remove(row)
            del self._rows[row.id]
        for row in [row for row in self._slots.rows if row.released and (self._is_due(row) or row.request)]:
            self._slots.free(row)
            del self._rows[row.id]

    def _admit(self) -> None:
        """Gives free slots to queued rows, in their order; they are due at once."""
        while self._queue and self._slots.has_room:
            row = self._queue.popleft()
            row.due = self._tick
            self._slots.away.append(row)

    def _take_joining(self) -> list[AttentionRow]:
        away = self._slots.away
        joining = [row for row in away if row.request is not None and not row.released and self._is_due(row)]
        return sorted(joining, key=lambda row: row.due)

    def _is_due(self, row: AttentionRow) -> bool:
        return not self._logical or row.due <= self._tick


# Pipelined training: the next step's rollouts are sampled with a copy of the policy while the policy is updated.


class Pipeline:
    """The host of the copy, and when the copy takes new weights."""

    def __init__(self, host: PolicyHost, policy: PolicyModel, *, at_steps: bool) -> None:
        """Takes both.

        Args:
            host: of the copy, with which rollouts are sampled.
            at_steps: whether new weights wait for the step's last rollout, so that which weights sampled what follows
                from the seed; else they are taken as soon as the update is over, within trajectories too.
        """
        self.host = host
        self.at_steps = at_steps
        self._policy = policy

    async def renew(self, version: int) -> None:
        """Gives the copy the policy's weights between two ticks. Args: version: updates that these have seen."""
        await self.host.change_weights(partial(copy_weights, self._policy, self.host.model), version)


def copy_for_sampling(policy: PolicyModel) -> PolicyModel:
    """A frozen copy of a policy; weights that are not trained are shared."""
    shared = {id(parameter): parameter for parameter in policy.full.parameters() if not parameter.requires_grad}
    full = copy.deepcopy(policy.full, shared)
    full.requires_grad_(False)
    return split(full, policy.dtype, is_plain=policy.plain is not None)


@torch.no_grad()
def copy_weights(source: PolicyModel, target: PolicyModel) -> None:
    """Copies the weights that are trained."""
    targets = dict(target.full.named_parameters())
    for name, parameter in source.full.named_parameters():
        if parameter.requires_grad:
            targets[name].copy_(parameter)
