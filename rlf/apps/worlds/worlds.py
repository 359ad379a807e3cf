"""Worlds of specs: listed, described, tried, attacked and played without a model."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.apps.worlds.examine import ATTACKS, TRIALS, Page, PointVerdict, examine_world
from rlf.core.errors import RlfError
from rlf.core.files import write_whole
from rlf.core.plain_json import Jsonable
from rlf.environments import ENV_KINDS
from rlf.environments.playing import Action, Happened, Played, Scene, follow, open_bench
from rlf.processes.fork_server import ForkFault, run_apart
from rlf.rewards.answers import draw_questions
from rlf.runs.worlds import own_keys, page_file, score_ranges, tasks_of, world_of, world_spec
from rlf.types import Task, ToolCall, ToolDescription
from rlf.types.world import shown_tools

if TYPE_CHECKING:
    from rlf.spec.models import RunSpec

logger = logging.getLogger(__name__)
MAX_STILL_S = 60.0
"""How long a world may hold the event loop itself."""


@dataclass(frozen=True, slots=True)
class WorldKind(Jsonable):
    """A kind of world that a spec can have."""

    kind: str
    summary: str
    files: tuple[Path, ...] = ()
    """Specs in the folder `specs` that have one."""


@dataclass(frozen=True, slots=True)
class DescribedWorld(Jsonable):
    """A spec's world as the model meets it."""

    kind: str
    source: str
    """sha256 of what decides how it behaves."""
    speaks: bool
    scores: tuple[str, ...] | None
    """Names of its scores; None where only playing shows them."""
    tools: tuple[ToolDescription, ...]
    limits: Mapping[str, float]
    num_tasks: int
    prompt: str
    """What the model reads before its first turn in the first task, by its chat format."""


def list_worlds(folder: Path = Path("specs")) -> list[WorldKind]:
    """Every kind of world, and the specs of a folder that have one."""
    from rlf.spec.facts import first_paragraph

    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.yaml")):
        env = own_keys(path).get("env")
        if isinstance(env, dict):
            found.setdefault(str(env.get("kind")), []).append(path)
    return [
        WorldKind(name, first_paragraph(ENV_KINDS.get(name)), tuple(found.get(name, ()))) for name in ENV_KINDS.names()
    ]


def describe_world(files: Sequence[Path], overrides: Sequence[str]) -> DescribedWorld:
    """A world's tools, scores and limits, and the first prompt with its first words. Raises RlfError."""
    spec = world_spec(files, overrides)
    env, tasks = world_of(spec), tasks_of(spec)
    try:
        begun = run_apart(lambda _: _begin_world(spec, tasks[0]), still_s=MAX_STILL_S)
    except (ForkFault, TimeoutError, RlfError) as fault:
        logger.warning("its first words are not shown: %s", fault)
        begun = None
    return DescribedWorld(
        env.kind,
        env.source_hash(),
        env.speaks,
        env.score_names,
        env.tools,
        env.limits.model_dump(),
        len(tasks),
        render_prompt(spec, tasks[0], begun),
    )


async def _begin_world(spec: RunSpec, task: Task) -> str | None:
    """The first words of a task's world."""
    async with open_bench(world_of(spec), [task], seed=spec.seed) as bench:
        played = await bench.play(task, follow(()))
    if played.observation is None and played.failure is not None:
        raise RlfError(f"{played.failure}.")
    return played.observation


def render_prompt(spec: RunSpec, task: Task, observation: str | None = None) -> str:
    """The prompt that the model reads before its first turn."""
    from rlf.chat.encoding import load_tokenizer
    from rlf.rollout.loop import with_observation
    from rlf.spec.model_files import model_location
    from rlf.training.harness import build_chat

    chat = build_chat(spec, load_tokenizer(model_location(spec.model.path)))
    messages = with_observation(task.messages, observation)
    return chat.decode(chat.prompt(messages, shown_tools(spec.env, spec.shown_tools, task)))


async def examine(
    spec: RunSpec, num_tasks: int, *, attack: bool, tolerance: float, seen: Callable[[PointVerdict], object] = bool
) -> Page:
    """Tests a world's lifecycle, or attacks its rewards.

    Args:
        tolerance: share of the reward that policies without skill may earn by luck.
        seen: takes each verdict as it is found.
    """
    tasks = draw_questions(tasks_of(spec), num_tasks, spec.seed)
    local = [tool for tool in spec.tools if tool.target.is_local]
    async with open_bench(world_of(spec), tasks, seed=spec.seed, tools=local) as bench:
        return await examine_world(
            bench, score_ranges(spec), ATTACKS if attack else TRIALS, tolerance=tolerance, seen=seen
        )


class Undone(Exception):
    """A person undoes the last action."""


Act = Callable[[Scene], Awaitable[Action | None]]
"""What a person does next. May raise Undone."""


async def play(spec: RunSpec, task: Task, act: Act) -> Played:
    """One episode of a world with a person as the policy.

    After Undone the world begins again, and all actions but the last are repeated.

    Raises:
        RlfError: a world that was begun again did not have the same result.
    """
    env = world_of(spec).contained()  # in a process that it may end without ending this one
    async with open_bench(env, [task], seed=spec.seed, tools=spec.tools, max_actions=1000) as bench:
        kept: tuple[Happened, ...] = ()
        while True:
            replay = _Replay(kept, act)
            try:
                return await bench.play(task, replay)
            except Undone:
                kept = replay.past[:-1]


class _Replay:
    """A policy that repeats actions, compares what they lead to with what they did before, and then asks a person."""

    def __init__(self, kept: tuple[Happened, ...], act: Act) -> None:
        self._kept, self._act = kept, act
        self.past: tuple[Happened, ...] = ()

    async def __call__(self, scene: Scene) -> Action | None:
        self.past = scene.past
        if scene.past[: len(self._kept)] != self._kept[: len(scene.past)]:
            raise RlfError("env: the last action cannot be undone: the same actions led to another state.")
        return self._kept[len(scene.past)].action if len(scene.past) < len(self._kept) else await self._act(scene)


def pick_task(spec: RunSpec, number: int) -> Task:
    """A task of the training data by its number. Raises RlfError."""
    tasks = tasks_of(spec)
    if number >= len(tasks):
        raise RlfError(f"--task: got {number}; there are tasks 0 to {len(tasks) - 1}.")
    return tasks[number]


def keep_page(spec: RunSpec, page: Page, runs_folder: Path) -> Path:
    """Writes the page of an attack where runs of that world find it."""
    file = page_file(spec, runs_folder)
    write_whole(file, json.dumps(asdict(page) | {"sha256": page.sha256}, indent=1))
    return file


# A world with a person as the policy, action by action: each request plays all actions so far in a new world.


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
