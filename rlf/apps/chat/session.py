"""An open conversation: model and tools run on their own thread, so that a terminal may wait for input."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rlf.apps.chat.speakers import (
    ConversationState,
    Show,
    ShownHost,
    ShownTools,
    ShownTurn,
    Speaker,
    TextSpeaker,
    TokenSpeaker,
    message_with,
)
from rlf.chat.format import find_any_call
from rlf.core.errors import RlfError
from rlf.core.identity import derive_seed
from rlf.engines.engine import HostSettings
from rlf.lineage.records import CHAT
from rlf.rewards.function import RewardFunction
from rlf.runs.players import open_text_players, save_trajectories
from rlf.runs.targets import Target
from rlf.training.harness import Traffic, build_harness
from rlf.types import Message, Scored, StopReason, Task, Trajectory

# A conversation: messages that are sent, taken back, sent again, scored and saved.


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A message of the user and its answer."""

    message: Message
    after: ConversationState


@dataclass(slots=True)
class Conversation:
    """One conversation."""

    speaker: Speaker
    tools: ShownTools
    reward: RewardFunction
    seed: int
    system: str = ""
    """The system message; empty: the model's own."""
    _exchanges: list[_Exchange] = field(default_factory=list)
    _num_tries: int = 0
    """Answers begun, each of which has a seed of its own."""
    _is_stale: bool = False
    """Whether something was taken back, so that tools no longer hold the state of what is left."""

    @property
    def trajectory(self) -> Trajectory | None:
        """The whole conversation; None before the first answer."""
        return self._exchanges[-1].after.trajectory if self._exchanges else None

    async def say(self, text: str, images: Sequence[str] = ()) -> Trajectory:
        """Sends a message, and lets the model answer. Where it is cancelled or fails, the conversation stays as it was.

        Raises:
            RlfError: the conversation is full, or the model cannot be shown an image.
        """
        return await self._send_message(message_with(text, images))

    async def retry(self) -> Trajectory:
        """Lets the model answer the last message again, with another seed."""
        if not self._exchanges:
            raise RlfError("the conversation is still empty.")
        last = self._exchanges[-1]
        self.undo()
        try:
            return await self._send_message(last.message)
        except BaseException:
            self._exchanges.append(last)
            raise

    def undo(self) -> Message:
        """Removes the last message and its answer. Raises RlfError where there is none."""
        if not self._exchanges:
            raise RlfError("the conversation is still empty.")
        self._is_stale = True
        return self._exchanges.pop().message

    def begin(self, system: str) -> None:
        """Starts over with a system message."""
        self.system, self._exchanges, self._is_stale = system, [], True

    async def score(self, gold: str | None) -> Scored:
        """Scores the conversation by the spec's reward terms. Args: gold: the answer that terms may compare with."""
        if self.trajectory is None:
            raise RlfError("the conversation is still empty.")
        trajectory = self.trajectory
        trajectory = replace(trajectory, task=replace(trajectory.task, answer=gold))
        return await self.reward.score(trajectory, step=0, group_size=1)

    async def close(self) -> None:
        """Releases what tools hold."""
        await self.tools.end()

    async def _send_message(self, message: Message) -> Trajectory:
        before = self._exchanges[-1].after if self._exchanges else None
        again = self._is_stale
        if again:
            await self.tools.end()
            self._is_stale = False
        system = [Message("system", self.system)] if self.system and before is None else []
        task = Task("chat", (*system, message))
        self._num_tries += 1
        seed = derive_seed(self.seed, "chat", self._num_tries)
        try:
            after = await self.speaker.answer(before, task, seed, again=again)
        except BaseException:
            self._is_stale = True
            raise
        if after.trajectory.stop is StopReason.INFRA_FAILURE:
            self._is_stale = True
            raise RlfError(f"{after.trajectory.error}. Your message was removed.")
        self._exchanges.append(_Exchange(message, after))
        return after.trajectory


T = TypeVar("T")

_END_S = 10.0
"""For what was cancelled to give back what it holds."""


class ChatSession:
    """A context manager around a conversation with a target. Its methods block; Ctrl-C ends what they wait for."""

    def __init__(self, target: Target, show: Show, notify: Callable[[str, str], None], *, greedy: bool = False) -> None:
        """Opens nothing yet.

        Args:
            show: takes what is said, called and returned, as it happens, on another thread.
            notify: takes what tools report: a level and the words.
            greedy: whether the likeliest token is taken, and not a sampled one.

        Raises:
            RlfError: the spec has a world, which has no place in a conversation.
        """
        if target.spec.env is not None:
            raise RlfError(f"{target.name}: its spec has a world (`env`). Play it with `rlf env play`.")
        self._open = partial(_open_conversation, target, show, notify, greedy=greedy)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rlf-chat", daemon=True)
        self._stop: asyncio.Event | None = None
        self._living: Future[None] | None = None
        self._opened: Future[Conversation] = Future()

    def __enter__(self) -> Self:
        self._thread.start()
        self._living = asyncio.run_coroutine_threadsafe(self._run_life(), self._loop)
        try:
            self.conversation = self._opened.result()
        except BaseException:
            self._end_life()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        failure = self._end_life()
        if failure is not None and error is None:
            raise failure

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work. Ctrl-C cancels it, and is raised when it has ended or at a second Ctrl-C."""
        ended = threading.Event()

        async def settle() -> T:
            try:
                return await work
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(settle(), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            ended.wait(_END_S)
            raise

    async def _run_life(self) -> None:
        """Opens everything, waits, and closes it, all in one task."""
        self._stop = asyncio.Event()
        try:
            async with self._open() as conversation:
                self._opened.set_result(conversation)
                await self._stop.wait()
                await conversation.close()
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    def _end_life(self) -> BaseException | None:
        """Closes everything; returns the failure of closing."""
        failure = None
        if self._stop is not None and self._living is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            failure = self._living.exception()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        return failure


@asynccontextmanager
async def _open_conversation(
    target: Target, show: Show, notify: Callable[[str, str], None], *, greedy: bool
) -> AsyncIterator[Conversation]:
    if target.endpoint is not None:
        async with _with_server(target, show, notify, greedy=greedy) as conversation:
            yield conversation
        return
    spec = target.spec
    host, tokenizer = await asyncio.to_thread(target.load_host, HostSettings(num_slots=1, dtype=spec.model.dtype))
    harness = build_harness(spec, tokenizer, notify)
    tools = ShownTools(harness.tools, show)
    async with harness.opened(), host:
        sampling = harness.greedy if greedy else harness.evaluation
        setting = harness.setting(ShownHost(host, harness.chat, show), sampling)
        limits = replace(
            setting.limits,
            max_total_tokens=min(host.max_tokens, tokenizer.model_max_length),
            max_new_tokens=spec.rollout.max_new_tokens or spec.rollout.max_total_tokens,
        )
        speaker = TokenSpeaker(replace(setting, tools=tools, limits=limits))
        yield Conversation(speaker, tools, harness.reward, spec.seed)


@asynccontextmanager
async def _with_server(
    target: Target, show: Show, notify: Callable[[str, str], None], *, greedy: bool
) -> AsyncIterator[Conversation]:
    usage: dict[str, dict[str, float]] = {}
    async with open_text_players(target, Traffic(), notify, usage) as (harness, player_of):
        tools = ShownTools(harness.tools, show)
        watch = ShownTurn(show, partial(find_any_call, tools=harness.tools.descriptions))
        player = replace(player_of(harness.greedy if greedy else harness.evaluation), tools=tools, watch=watch)
        yield Conversation(TextSpeaker(player), tools, harness.reward, target.spec.seed)


def save(scored: Scored, target: Target, runs_folder: Path, command: Sequence[str]) -> str:
    """Saves a conversation in the lineage, where `rlf trace` shows it; returns its id there."""
    return save_trajectories([scored], CHAT, target, runs_folder, command)
