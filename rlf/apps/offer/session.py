"""A client's episode of a served world: reset to a task, stepped, scored, closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rlf.environments.episode import WorldEpisode
from rlf.environments.playing import Bench, Ranges
from rlf.types import Phase, Task, ToolCall, ToolDescription, ToolResult, WorldFailure


class ActionReply(NamedTuple):
    """Result of one action."""

    said: str | None
    result: ToolResult | None
    """Of a call."""
    reward: float | None
    """The step's own; at the end the share of the possible reward that the final state earned."""
    done: bool
    scores: dict[str, float] | None
    """At the end."""


class WorldSession:
    """One client's world; a reset makes another one."""

    def __init__(self, bench: Bench, ranges: Ranges) -> None:
        self._bench, self._ranges = bench, ranges
        self._episode: WorldEpisode | None = None
        self._id = ""
        self.task: Task | None = None
        self.num_steps = 0

    @property
    def tools(self) -> Sequence[ToolDescription]:
        """The tools of the world."""
        return self._bench.executor.descriptions

    async def reset(self, number: int | None = None, seed: int | None = None) -> str:
        """Begins an episode; returns the question and the world's first text. Raises WorldFailure.

        Args:
            number: which task; None: the one that the seed picks, or the next one.
        """
        await self.close()
        turn = next(self._bench.numbers)
        tasks = self._bench.tasks
        at = number if number is not None else seed if seed is not None else turn
        self.task, self.num_steps, self._id = tasks[at % len(tasks)], 0, f"session/{turn}"
        self._episode = self._bench.worlds.open(self._id, self.task)
        said = await self._episode.reset()
        texts = [message.content for message in self.task.messages] + ([said] if said else [])
        return "\n\n".join(texts)

    async def call(self, call: ToolCall) -> ActionReply:
        """Runs a call. Raises WorldFailure where the world failed."""
        episode = self._live()
        result = await self._bench.executor.invoke(call, trajectory_id=self._id)
        if result.outcome.is_infrastructure:
            kind = self._bench.spec.kind
            raise WorldFailure(kind, Phase.STEP, result.text.removeprefix(f"error: world {kind}: {Phase.STEP}: "))
        return await self._acted(episode, result.text, result, ends=False)

    async def say(self, text: str) -> ActionReply:
        """A turn without calls, which ends the episode where the world has no answer. Raises WorldFailure."""
        episode = self._live()
        if episode.speaks:
            await episode.reply(text)
        return await self._acted(episode, None, None, ends=True)

    async def _acted(
        self, episode: WorldEpisode, said: str | None, result: ToolResult | None, *, ends: bool
    ) -> ActionReply:
        self.num_steps += 1
        step = episode.take_step()
        done = step.is_over or (ends and step.reply is None)
        scores = await self.scores() if done else None
        reward = step.reward if scores is None else self._ranges.value(scores)
        return ActionReply(step.reply if step.reply is not None else said, result, reward, done, scores)

    async def scores(self) -> dict[str, float]:
        """Scores of the state as it is. Raises WorldFailure."""
        episode = self._live()
        await episode.score()
        return dict(episode.record.scores)

    def _live(self) -> WorldEpisode:
        if self._episode is None:
            raise RuntimeError("the world is not reset; reset it first")
        return self._episode

    async def close(self) -> None:
        """Closes the world."""
        episode, self._episode = self._episode, None
        if episode is not None:
            await episode.close()
            await self._bench.executor.end_trajectory(self._id)

    def world_state(self) -> dict[str, Any]:
        """The task, and the state that the world shows after its last step."""
        task = None if self.task is None else self.task.id
        return {"task": task, "state": None if self._episode is None else self._episode.state}

    def state(self) -> dict[str, Any]:
        """State of the session."""
        return {
            "episode_id": self._id,
            "step_count": self.num_steps,
            "task": None if self.task is None else self.task.id,
        }
