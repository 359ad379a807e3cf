"""`rlf env serve`: serves a spec's world to other programs' clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from rlf.environments.episode import WorldEpisode
from rlf.environments.playing import Bench, Ranges, open_bench
from rlf.processes.servers import listening, serve_app
from rlf.runs.worlds import score_ranges, tasks_of, world_of
from rlf.types import Task, ToolCall, ToolDescription, ToolResult

if TYPE_CHECKING:
    from rlf.spec.models import RunSpec


def _open_bench(spec: RunSpec) -> AbstractAsyncContextManager[Bench]:
    return open_bench(world_of(spec), tasks_of(spec), seed=spec.seed, tools=spec.tools)


async def serve_openenv(spec: RunSpec, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serves OpenEnv's protocol until SIGINT or SIGTERM.

    Args:
        tell: called with the address once it is served.

    Raises:
        RunError: the port is in use.
    """
    from aiohttp import web

    from rlf.apps.offer.openenv import OpenEnvServer
    from rlf.core.servers import guard_visitors

    with listening(host, port) as listener:
        async with _open_bench(spec) as bench:
            app = web.Application(middlewares=[guard_visitors(host)])
            server = OpenEnvServer(bench, score_ranges(spec), spec.name)
            app.add_routes(server.routes())
            app.on_shutdown.append(server.close_worlds)
            await serve_app(app, listener, tell)


async def serve_mcp_stdio(spec: RunSpec) -> None:
    """Serves MCP on stdin and stdout until stdin ends."""
    from mcp.server.stdio import stdio_server

    from rlf.apps.offer.mcp import world_server

    async with (
        stdio_server() as (read_stream, write_stream),
        _open_bench(spec) as bench,
    ):
        server = world_server(bench, score_ranges(spec), spec.name)
        await server.run(read_stream, write_stream, server.create_initialization_options())


async def serve_mcp_http(spec: RunSpec, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serves MCP's streamable HTTP at `/mcp` until SIGINT or SIGTERM. Raises RunError."""
    from rlf.apps.offer.mcp import world_server
    from rlf.apps.offer.tools import serve_mcp_app

    async with _open_bench(spec) as bench:
        await serve_mcp_app(world_server(bench, score_ranges(spec), spec.name), host, port, tell)


# A client's episode of a served world: reset to a task, stepped, scored, closed.


class Acted(NamedTuple):
    """Result of one action."""

    said: str | None
    result: ToolResult | None
    """Of a call."""
    reward: float | None
    """The step's own; at the end the share of the possible reward that the final state earned."""
    done: bool
    scores: dict[str, float] | None
    """At the end."""


class Session:
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

    async def call(self, call: ToolCall) -> Acted:
        """Runs a call. Raises WorldFailure where the world failed."""
        episode = self._live()
        result = await self._bench.executor.invoke(call, trajectory_id=self._id)
        if result.outcome.is_infrastructure:
            raise RuntimeError(result.text)
        return await self._acted(episode, result.text, result, ends=False)

    async def say(self, text: str) -> Acted:
        """A turn without calls, which ends the episode where the world has no answer. Raises WorldFailure."""
        episode = self._live()
        if episode.speaks:
            await episode.reply(text)
        return await self._acted(episode, None, None, ends=True)

    async def _acted(self, episode: WorldEpisode, said: str | None, result: ToolResult | None, *, ends: bool) -> Acted:
        self.num_steps += 1
        step = episode.take_step()
        done = step.is_over or (ends and step.reply is None)
        scores = await self.scores() if done else None
        reward = step.reward if scores is None else self._ranges.value(scores)
        return Acted(step.reply if step.reply is not None else said, result, reward, done, scores)

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
