"""`env: {kind: several}`: worlds by name, of which each row names the one that its trajectories have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from rlf.core import nearest
from rlf.core.identity import hash_json
from rlf.core.kinds import StrictModel, wrong_value
from rlf.core.meter import Meter
from rlf.environments.kind import EnvLimits, EnvSpec
from rlf.environments.world import MakeWorld, Step, World
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall, ToolDescription, Turn


class WorldScore(StrictModel):
    """A score of one of several worlds that is brought to the scale of all."""

    score: str
    """Its name, as the world gives it."""
    range: tuple[float, float] = (0.0, 1.0)
    """Its least and greatest value, which become 0 and 1."""


class SeveralEnv(EnvSpec):
    """Several worlds by name: the column `column` of a row names the one that its trajectories have.

    A trajectory sees the tools of its own world, beside those that the spec declares. Reports show success, rewards and
    advantages by world, and estimators that normalise over a batch do so within a world. `limits` are those of each
    world that has none of its own; `max_concurrency` is of all together.
    """

    kind: Literal["several"] = "several"
    worlds: Mapping[str, EnvSpec] = Field(min_length=1)
    """The worlds by their names: what is a key of `env` elsewhere, for each."""
    scores: Mapping[str, WorldScore] = {}
    """By world, the one of its scores that is `score` here, from 0 to 1: `{shop: {score: paid, range: [0, 10]}}`. Of a
    world without one, only its own scores."""
    column: str = "env"
    """Column of the data with the name of the row's world."""

    @model_validator(mode="before")
    @classmethod
    def _share_limits(cls, data: Any) -> Any:
        limits, worlds = (data.get("limits"), data.get("worlds")) if isinstance(data, dict) else (None, None)
        if not isinstance(limits, Mapping) or not isinstance(worlds, Mapping):
            return data
        shared = {name: value for name, value in limits.items() if name != "max_concurrency"}
        given = {
            name: {**world, "limits": {**shared, **(world.get("limits") or {})}}
            if isinstance(world, Mapping)
            else world
            for name, world in worlds.items()
        }
        return {**data, "worlds": given}

    @model_validator(mode="after")
    def _is_flat(self) -> Self:
        for name, world in self.worlds.items():
            if isinstance(world, SeveralEnv) or not name or "/" in name:
                raise wrong_value(f"worlds: got {name!r}; expected a name without `/`, of a world that is not several.")
            if world.limits.max_concurrency not in (EnvLimits().max_concurrency, self.limits.max_concurrency):
                raise wrong_value(
                    f"worlds.{name}.limits.max_concurrency: it is of all worlds together. Write it in env.limits."
                )
        for name, one in self.scores.items():
            if name not in self.worlds or not one.range[0] < one.range[1]:
                known = ", ".join(self.worlds)
                raise wrong_value(f"scores.{name}: expected the name of a world ({known}) and a range that rises.")
        return self

    @property
    def parts(self) -> Mapping[str | None, EnvSpec]:
        """The worlds."""
        return dict[str | None, EnvSpec](self.worlds.items())

    def charge_to(self, meter: Meter) -> None:
        """Has a meter count what all of them spend."""
        super().charge_to(meter)
        for world in self.worlds.values():
            world.charge_to(meter)

    @property
    def left_behind(self) -> str:
        """Of the first world that left something behind."""
        found = ((name, world.left_behind) for name, world in self.worlds.items())
        return next((f"{name}: {words}" for name, words in found if words), "")

    @property
    def speaks(self) -> bool:
        """Whether any does."""
        return any(world.speaks for world in self.worlds.values())

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Those of all."""
        names = [world.score_names for world in self.worlds.values()]
        if None in names:
            return None
        every = [*(name for some in names for name in some or ()), *(["score"] * bool(self.scores))]
        return tuple(dict.fromkeys(every))

    def part_of(self, columns: Mapping[str, Any]) -> tuple[str | None, EnvSpec]:
        """The world that a row names. Raises ValueError."""
        name, part = columns.get(self.column), self._named(columns)
        if part is None:
            close = nearest(str(name), [*self.worlds])
            raise ValueError(f"{self.column}: there is no world {name!r:.80}{close} (known: {', '.join(self.worlds)})")
        return name, part

    def _named(self, columns: Mapping[str, Any]) -> EnvSpec | None:
        name = columns.get(self.column)
        return self.worlds.get(name) if isinstance(name, str) else None

    def describe_tools(self) -> Sequence[ToolDescription]:
        """The tools of all worlds; of those with one name, which are alike, one."""
        return list({tool.name: tool for world in self.worlds.values() for tool in world.tools}.values())

    def tools_of(self, columns: Mapping[str, Any]) -> Sequence[ToolDescription] | None:
        """What the row's world says."""
        part = self._named(columns)
        return None if part is None else part.tools_of(columns)

    def foreign_tools(self, columns: Mapping[str, Any]) -> Collection[str]:
        """The tools that the row's world lacks."""
        part = self._named(columns)
        return () if part is None else {tool.name for tool in self.tools} - {tool.name for tool in part.tools}

    def static_complaints(self) -> list[str]:
        """Those of each."""
        return self._of_worlds({name: world.static_complaints() for name, world in self.worlds.items()})

    def complaints(self) -> list[str]:
        """Those of each, and tools that two worlds describe in different ways."""
        found = self._of_worlds({name: world.complaints() for name, world in self.worlds.items()})
        first: dict[str, tuple[str, ToolDescription]] = {}
        for name, world in {} if found else self.worlds.items():
            for tool in world.tools:
                other, described = first.setdefault(tool.name, (name, tool))
                if described != tool:
                    words = f"has another description or other arguments than that of {other!r}"
                    found.append(f"worlds.{name}: its tool {tool.name!r} {words}; rename one, or make them alike")
        return found

    def _of_worlds(self, complaints: Mapping[str, Sequence[str]]) -> list[str]:
        return [f"worlds.{name}: {complaint}" for name, some in complaints.items() for complaint in some]

    def source_hash(self) -> str:
        """Covers each world and how rows name them."""
        scores = {name: one.model_dump() for name, one in self.scores.items()}
        return hash_json([self.column, scores, {name: world.source_hash() for name, world in self.worlds.items()}])

    def contained(self) -> Self:
        """All of them where they cannot end this process."""
        worlds = {name: world.contained() for name, world in self.worlds.items()}
        return self.model_copy(update={"worlds": worlds})

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Opens all."""
        async with AsyncExitStack() as stack:
            opened = {name: await stack.enter_async_context(world.open()) for name, world in self.worlds.items()}

            async def make() -> World:
                return _NamedWorld(self, opened)

            yield make


class _NamedWorld(World):
    """The world of a row, made at its reset, which says which one it is."""

    begins_by_copy = True  # `snapshot` gives nothing for a world that does not

    def __init__(self, spec: SeveralEnv, makers: Mapping[str, MakeWorld]) -> None:
        self._spec, self._makers = spec, makers
        self._world: World | None = None
        self._name = ""
        self._names: Collection[str] = ()
        self._columns: Mapping[str, Any] = {}

    @property
    def _inner(self) -> World:
        assert self._world is not None, "a world before its reset"
        return self._world

    async def _make(self, columns: Mapping[str, Any]) -> World:
        name, spec = self._spec.part_of(columns)
        self._name, self._columns = str(name), columns
        self._names = [tool.name for tool in spec.tools]
        world = self._world = await self._makers[self._name]()
        self.shows_state, self.ends_when_cancelled = world.shows_state, world.ends_when_cancelled
        return world

    async def snapshot(self) -> Any:
        taken = await self._inner.snapshot() if self._inner.begins_by_copy else None
        return None if taken is None else (self._columns, taken)

    async def restore(self, snapshot: Any) -> None:
        columns, taken = snapshot
        await (await self._make(columns)).restore(taken)

    async def reset(self, task: Task, seed: int) -> str | None:
        said = await (await self._make(task.columns)).reset(task, seed)
        self.shows_state = self._inner.shows_state
        return said

    async def call(self, call: ToolCall) -> Step:
        if self._names and call.name not in self._names:
            text = f"no tool {call.name!r:.80} (known: {', '.join(self._names)})"
            raise ToolFailure(Outcome.UNKNOWN_TOOL, text)
        return await self._inner.call(call)

    async def reply(self, text: str) -> Step:
        return await self._inner.reply(text)

    async def review(self, turns: Sequence[Turn]) -> None:
        await self._inner.review(turns)

    async def score(self) -> Mapping[str, float]:
        scores, scaled = await self._inner.score(), self._spec.scores.get(self._name)
        if scaled is None:
            return scores
        least, greatest = scaled.range
        return {**scores, "score": (scores[scaled.score] - least) / (greatest - least)}

    async def gold(self) -> Sequence[ToolCall | str] | None:
        return await self._inner.gold()

    async def state(self) -> Any:
        return await self._inner.state()

    async def close(self) -> None:
        if self._world is not None:
            await self._world.close()
