"""A conversation: messages that are sent, taken back, sent again, scored and saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rlf.api.chat.speakers import ShownTools, Speaker, Spoken, message_with
from rlf.core.errors import RlfError
from rlf.core.identity import derive_seed
from rlf.rewards.function import RewardFunction
from rlf.types import Message, Scored, StopReason, Task, Trajectory


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A message of the user and its answer."""

    message: Message
    after: Spoken


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
