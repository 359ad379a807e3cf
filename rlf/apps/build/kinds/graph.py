"""`build: {kind: graph}`: tasks without a language model, from seeded worlds and a grammar."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from rlf.apps.build.kind import BuildKind, BuildShape, shares_of
from rlf.apps.build.pack import Pack, load_pack
from rlf.apps.build.task import Scenario
from rlf.apps.build.toolkit import Toolkit, make_toolkit
from rlf.apps.build.workshop import CODE, GraphTools, WorldMaker, WorldPlan, shared_sources
from rlf.apps.build.worlds import Paths, add_noise
from rlf.builtin.encyclopedia.names import NameSplit, split_names
from rlf.core import RlfError, hash_json


class GraphBuild(BuildKind):
    """Tasks from seeded worlds and a grammar: no model, no network, the same bytes from the same seed."""

    kind: Literal["graph"] = "graph"
    count: int = Field(2000, ge=3)
    """Number of tasks."""
    pack: str = "english"
    """Language pack: `english`, `embedded`, or a YAML file of your own, relative to the build file."""
    worlds: int | None = Field(None, ge=1)
    """Number of worlds; None: one for each 400 tasks, and one for each part of the split at least."""
    entities: int = Field(60, ge=10)
    """Things of each kind in a world."""
    integrate: float = Field(0.35, ge=0, le=1)
    """Chance that the relations of one signature have one function together."""
    base_tools: int = Field(6, ge=1)
    """Tools that a task has at least, of other families than those it needs, before `complexity.toolset`."""

    changes: float = Field(0.0, ge=0, le=1)
    """Chance that a task whose first relation is mutable begins with a change. Above 0 each trajectory has tables of
    its own, and tools may change them."""

    def estimate(self, shape: BuildShape) -> dict[str, float]:
        """Counts; it costs nothing."""
        plans = self._plan_worlds(shape)
        tools = {function.name for plan in plans for function in plan.toolkit.functions}
        by_split = Counter[str]()
        for plan in plans:
            by_split[plan.split] += plan.quota.total()
        counts = {f"tasks/{split}": float(number) for split, number in by_split.items()}
        return {
            "tasks": float(self.count),
            **counts,
            "worlds": float(len(plans)),
            "tools": float(len(tools)),
            "cost_usd": 0.0,
        }

    @contextmanager
    def open(self, shape: BuildShape, folder: Path) -> Iterator[WorldMaker]:
        """A maker with a part for each world."""
        yield WorldMaker(shape, self._plan_worlds(shape))

    @asynccontextmanager
    async def open_tools(self, folder: Path) -> AsyncIterator[GraphTools]:
        """The module of the world."""
        with closing(GraphTools(folder)) as tools:
            yield tools

    def source_hash(self) -> str:
        """Covers the language pack."""
        return hash_json(self._language_pack.model_dump(mode="json"))

    def code_files(self, codes: Mapping[str, str]) -> dict[str, str]:
        """One module: what all functions share, and the functions."""
        return {CODE: "\n\n".join([*shared_sources(acts=self.changes > 0), *codes.values()])}

    @property
    def env(self) -> Mapping[str, str] | None:
        """A world of each trajectory's own where tools change it."""
        return {"kind": "python", "callable": f"{CODE}:World", "isolation": "inline"} if self.changes else None

    @property
    def _language_pack(self) -> Pack:
        return load_pack(str(self._folder / self.pack) if self.pack.endswith((".yaml", ".yml")) else self.pack)

    def _plan_worlds(self, shape: BuildShape) -> list[WorldPlan]:
        """The plan of each world; the toolkits' names are dealt here, so that none is given twice."""
        pack = self._language_pack
        longest = Paths(pack).longest(shape.hops[1])
        if longest < shape.hops[1]:
            raise RlfError(f"hops: the pack {self.pack!r} has chains of {longest} relations at most. Write fewer hops.")
        if self.changes and shape.complexity.types > 1:
            raise RlfError(
                "build.changes: tools that change the world take plain types only. Write at most `complexity.types: 1`."
            )
        counts = {name: count for name, count in shares_of(self.count, shape.split.shares).items() if count}
        num_worlds = max(self.worlds or self.count // 400, len(counts))
        worlds = {name: max(1, number) for name, number in shares_of(num_worlds, counts).items()}
        used: set[str] = set()
        kits: list[Toolkit] = []
        plans: list[WorldPlan] = []
        for split, number in worlds.items():
            names = self._draw_names(split, number, pack)
            quotas = _deal_tasks(counts[split], number, shape.scenarios)
            for at, quota in enumerate(quotas):
                rng = random.Random(f"tools:{self.seed}:{len(plans)}")
                if not kits or "tools" in shape.split.by:
                    kit = make_toolkit(pack, shape.complexity, self.integrate, used, rng, acts=self.changes > 0)
                    kits.append(add_noise(kit, shape.noise, used, rng))
                own = names[at * self.entities * len(pack.kinds) : (at + 1) * self.entities * len(pack.kinds)]
                plans.append(
                    WorldPlan(
                        f"w{len(plans):03d}",
                        split,
                        quota,
                        tuple(own),
                        kits[-1],
                        pack,
                        self.seed,
                        self.base_tools,
                        self.changes,
                    )
                )
        return plans

    def _draw_names(self, split: str, num_worlds: int, pack: Pack) -> list[str]:
        names = list(split_names(NameSplit(split)))
        needed = num_worlds * self.entities * len(pack.kinds)
        if needed > len(names):
            most = len(names) // (self.entities * len(pack.kinds))
            raise RlfError(
                f"build: {num_worlds} worlds of {self.entities} things of {len(pack.kinds)} kinds need {needed} names "
                f"for {split}; there are {len(names)}. Write `build.worlds` so that {split} has at most {most}."
            )
        return random.Random(f"names:{self.seed}:{split}").sample(names, needed)


def _deal_tasks(count: int, num_worlds: int, weights: Mapping[Scenario, float]) -> list[Counter[Scenario]]:
    """How many tasks of each shape each world gets: as even as can be."""
    by_scenario = shares_of(count, {scenario.value: weight for scenario, weight in weights.items()})
    worlds = [Counter[Scenario]() for _ in range(num_worlds)]
    first = 0
    for scenario, number in by_scenario.items():  # one after the other, as cards are dealt
        for place, world in enumerate(worlds):
            if share := len(range((place - first) % num_worlds, number, num_worlds)):
                world[Scenario(scenario)] = share
        first += number
    return worlds
