"""A world with a person as the policy, action by action: each request plays all actions so far in a new world."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.api.env.worlds import Action, Happened, Scene, pick_task, play, tasks_of, world_spec
from rlf.core.errors import RlfError
from rlf.types import ToolCall, ToolDescription


@dataclass(frozen=True, slots=True)
class WorldScene:
    """A world after some actions."""

    task_id: str
    num_tasks: int
    """Of the training data."""
    messages: tuple[tuple[str, str], ...]
    """Role and text of what the policy reads first."""
    observation: str | None
    speaks: bool
    """Whether it answers words."""
    tools: tuple[ToolDescription, ...]
    steps: tuple[Happened, ...]
    is_over: bool
    scores: tuple[tuple[str, float], ...]
    """If it ended here."""
    failure: str | None


def play_actions(spec: str, number: int, actions: Sequence[str | Mapping[str, Any]]) -> WorldScene:
    """Plays actions in the world of a spec.

    Args:
        number: of the task in the training data.
        actions: words, or calls with `name` and `arguments`.

    Raises:
        RlfError: the spec has no world, or no such task.
    """
    found = world_spec([Path(spec)], [])
    task, played, scenes = pick_task(found, number), [_parse_action(one) for one in actions], list[Scene]()

    async def act(scene: Scene) -> Action | None:
        scenes.append(scene)
        return played[len(scene.past)] if len(scene.past) < len(played) else None

    ended = asyncio.run(play(found, task, act))
    tools = scenes[0].tools if scenes else ()
    return WorldScene(
        task_id=task.id,
        num_tasks=len(tasks_of(found)),
        messages=tuple((message.role, message.content) for message in task.messages),
        observation=ended.observation,
        speaks=bool(scenes) and scenes[0].speaks,
        tools=tuple(tools),
        steps=ended.steps,
        is_over=ended.failure is not None or (bool(ended.steps) and len(scenes) <= len(ended.steps)),
        scores=ended.scores,
        failure=ended.failure,
    )


def _parse_action(given: str | Mapping[str, Any]) -> Action:
    if isinstance(given, str):
        return given
    name, arguments = given.get("name"), given.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise RlfError("actions: got a call without `name` and `arguments`. Write text, or a call with both.")
    return ToolCall(name, dict(arguments))
