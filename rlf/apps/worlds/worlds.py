"""Worlds of specs: listed, described, tried, attacked and played without a model."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rlf.apps.worlds.conditions import limit_memory
from rlf.apps.worlds.examine import ATTACKS, TRIALS, examine_world
from rlf.apps.worlds.trial import Page, PointVerdict, Sign
from rlf.core.errors import RlfError
from rlf.core.files import write_whole
from rlf.core.identity import hash_json
from rlf.core.plain_json import Jsonable
from rlf.environments import ENV_KINDS
from rlf.environments.playing import Action, Bench, Happened, Played, Scene, follow, open_bench
from rlf.processes.fork_server import ForkFault, run_apart
from rlf.rewards.facts import CallFacts, TrajectoryFacts, TurnFacts
from rlf.rewards.term import RewardContext
from rlf.runs.declared import draw_questions
from rlf.runs.worlds import judged_terms, own_keys, page_file, score_ranges, tasks_of, world_of, world_spec
from rlf.spec.models import RunSpec
from rlf.types import Outcome, Task, ToolCall, ToolDescription, Trajectory, WorldRecord, WorldStep
from rlf.types.world import shown_tools

logger = logging.getLogger(__name__)
MAX_STILL_S = 60.0
"""How long a world may hold the event loop itself."""
CONTAINED = "contained"
"""The last point: whether the process that plays lived."""
_CONTAINED_CURE = (
    "Have it return or raise; a class of `kind: python` that may end its process is tried with `env.isolation=process`"
)


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
        render_world_prompt(spec, tasks[0], begun),
    )


async def _begin_world(spec: RunSpec, task: Task) -> str | None:
    """The first words of a task's world."""
    async with open_bench(world_of(spec), [task], seed=spec.seed) as bench:
        played = await bench.play(task, follow(()))
    if played.observation is None and played.failure is not None:
        raise RlfError(f"{played.failure}.")
    return played.observation


def render_world_prompt(spec: RunSpec, task: Task, observation: str | None = None) -> str:
    """The prompt that the model reads before its first turn."""
    from rlf.chat.encoding import load_tokenizer
    from rlf.rollout.rollout import with_observation
    from rlf.spec.model_files import model_location
    from rlf.training.harness import build_chat

    chat = build_chat(spec, load_tokenizer(model_location(spec.model.path)))
    messages = with_observation(task.messages, observation)
    return chat.decode(chat.prompt(messages, shown_tools(spec.env, spec.shown_tools, task)))


def examine_apart(
    spec: RunSpec,
    num_tasks: int,
    *,
    attack: bool,
    tolerance: float,
    limit_s: float,
    seen: Callable[[PointVerdict], object] = bool,
) -> Page:
    """Proves a world, or attacks its rewards, in a process of its own, which a world may end, block or fill.

    Args:
        tolerance: share of the reward that policies without skill may earn by luck.
        limit_s: how long all points may take together.
        seen: takes each verdict as it is found.
    """
    checks = ATTACKS if attack else TRIALS
    verdicts = list[PointVerdict]()

    def note(verdict: PointVerdict) -> None:
        verdicts.append(verdict)
        seen(verdict)

    async def work(tell: Callable[[Any], None]) -> Page:
        limit_memory()
        tasks = draw_questions(tasks_of(spec), num_tasks, spec.seed)
        local = [tool for tool in spec.tools if tool.target.is_local]
        async with open_bench(world_of(spec), tasks, seed=spec.seed, tools=local) as bench, open_judge(spec, bench):
            return await examine_world(
                bench,
                score_ranges(spec),
                checks,
                tolerance=tolerance,
                seen=tell,
                max_turns=spec.rollout.max_turns,
                limit_s=limit_s,
            )

    try:
        page = run_apart(work, note, still_s=min(MAX_STILL_S, limit_s))
    except (ForkFault, TimeoutError) as fault:
        names = list(checks)
        is_late = isinstance(fault, TimeoutError)
        what = f"held the process that tries it: {fault}" if is_late else f"ended the process that tries it ({fault})"
        words = f"the world {what}, at the point {names[min(len(verdicts), len(names) - 1)]!r}"
        note(PointVerdict(CONTAINED, Sign.FAILED, f"{words}. {_CONTAINED_CURE}"))
        env = world_of(spec)
        source = hash_json([env.model_dump(mode="json"), env.source_hash()])
        return Page(env.kind, source, num_tasks, 0, tuple(verdicts))
    contained = PointVerdict(CONTAINED, Sign.OK, "no episode ended or held the process that played it")
    seen(contained)
    return replace(page, verdicts=(*page.verdicts, contained))


@asynccontextmanager
async def open_judge(spec: RunSpec, bench: Bench) -> AsyncIterator[None]:
    """Has the spec's own terms score what is played, beside the world."""
    from rlf.rewards.function import RewardFunction

    terms = judged_terms(spec)
    if not terms:
        yield
        return
    context = RewardContext(bench.executor.for_rewards, spec.seed, lambda _, words: logger.warning("%s", words))
    async with RewardFunction(terms, context) as function:

        async def judge(task: Task, steps: Sequence[Happened], world: WorldRecord) -> Mapping[str, float]:
            scored = await function.score(write_trajectory(task, steps, world), step=1)
            return {f"rewards.{one.term}": one.value for one in scored.scores if one.value is not None}

        bench.judge = judge
        yield


def write_trajectory(task: Task, steps: Sequence[Happened], world: WorldRecord) -> Trajectory:
    """The trajectory of an episode that no model sampled: a turn for each action, and the last words as its answer."""
    words = [step.action if isinstance(step.action, str) else "" for step in steps]
    turns = [
        TurnFacts(
            text=text,
            calls=(
                (CallFacts(name=step.action.name, arguments=step.action.arguments, result=step.said or ""),)
                if isinstance(step.action, ToolCall)
                else ()
            ),
            reward=step.reward,
        )
        for step, text in zip(steps, words, strict=True)
    ]
    answer = next((text for text in reversed(words) if text), None)
    made = TrajectoryFacts(question=task.question, answer=answer, turns=tuple(turns)).trajectory(task.id)
    played = [
        replace(
            turn,
            calls=tuple(
                replace(call, result=replace(call.result, outcome=step.outcome or Outcome.OK)) for call in turn.calls
            ),
            world=WorldStep(step.changes, step.reward, step.said if text else None, step.is_over),
        )
        for turn, step, text in zip(made.turns if steps else (), steps, words, strict=True)
    ]
    return replace(made, task=task, turns=tuple(played), world=world)


class Undone(Exception):
    """A person undoes the last action."""


Act = Callable[[Scene], Awaitable[Action | None]]
"""What a person does next. May raise Undone."""


async def play_episode(spec: RunSpec, task: Task, act: Act) -> Played:
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


def play_world(spec: str, number: int, actions: Sequence[str | Mapping[str, Any]]) -> WorldScene:
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

    ended = asyncio.run(play_episode(found, task, act))
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
