"""One world's tasks: drawn, proven, and counted."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import CodeType
from typing import Any

from rlf.apps.build import runtime, stateful
from rlf.apps.build.calls import Call, KnownTool, TriedCall
from rlf.apps.build.kind import BuildPart, BuildShape
from rlf.apps.build.pack import Pack, PackRelation
from rlf.apps.build.task import (
    REFERENCE,
    BuildTask,
    CallStep,
    Figures,
    Join,
    ProofBench,
    ProofFailure,
    Scenario,
    check_twin,
    policy_scores,
    prove_task,
)
from rlf.apps.build.toolkit import Function, Toolkit
from rlf.apps.build.worlds import Calls, FactGraph, Facts, Paths, make_world, open_database, sample_graph, to_sql
from rlf.core import RlfError
from rlf.core.leaks import SearchedText
from rlf.rewards.values import Finding, Solved
from rlf.spec import load_spec
from rlf.tools.outputs import to_text

CODE, DATABASE, SPEC = "tools.py", "world.db", "spec.yaml"
"""The module of a world's functions, its tables, and the spec over it."""
_TRIES = 200
"""Tasks made for one that is kept, at the most."""
_OWN_IMPORT = "".join(
    line for line in Path(stateful.__file__).read_text(encoding="utf-8").splitlines(True) if line.startswith("from rlf")
)


@cache
def runtime_source() -> str:
    """The code that all functions share, as it is deployed."""
    return Path(runtime.__file__).read_text(encoding="utf-8")


def shared_sources(*, acts: bool) -> list[str]:
    """The code that all functions share, with that of changes where there are any."""
    if not acts:
        return [runtime_source()]
    source = Path(stateful.__file__).read_text(encoding="utf-8").replace(_OWN_IMPORT, "")
    return [runtime_source(), source.replace(f"class {stateful.StatefulWorld.__name__}:", "class World:")]


@dataclass(frozen=True, slots=True)
class WorldChange:
    """Two things that change their values of a relation before the question."""

    relation: PackRelation
    names: tuple[str, str]

    def applied(self, facts: Facts) -> Facts:
        """The facts after it."""
        first, second = ((self.relation.name, name) for name in self.names)
        return ChainMap({first: facts[second], second: facts[first]}, dict(facts))


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """The plan of one world."""

    name: str
    split: str
    quota: Counter[Scenario]
    names: Sequence[str]
    toolkit: Toolkit
    pack: Pack
    seed: int
    base_tools: int
    changes: float


class WorldMaker:
    """Makes a part for each world."""

    def __init__(self, shape: BuildShape, plans: Sequence[WorldPlan]) -> None:
        self._shape = shape
        self._plans = {plan.name: plan for plan in plans}
        self.names: Sequence[str] = tuple(self._plans)

    def make(self, name: str) -> BuildPart:
        """The tasks of one world."""
        return Workshop(self._shape, self._plans[name]).part()


class Workshop:
    """Makes the tasks of one world."""

    def __init__(self, shape: BuildShape, plan: WorldPlan) -> None:
        self._shape, self._plan, self._pack = shape, plan, plan.pack
        self._paths = Paths(self._pack)
        self._rng = random.Random(f"world:{plan.seed}:{plan.name}")
        self._words = random.Random(f"words:{plan.seed}:{plan.name}")  # other words ask for the same
        self._world = make_world(
            plan.name, self._pack, plan.names, self._rng, with_former=shape.complexity.function == 3
        )
        self._functions = {function.name: function for function in plan.toolkit.functions}
        self._codes = {function.name: function.source() for function in plan.toolkit.functions}
        if plan.changes:
            self._codes = {name: code + self._functions[name].method() for name, code in self._codes.items()}
        self._kind_by_name = {name: kind for kind, names in self._world.names_by_kind.items() for name in names}
        self._tried: dict[tuple[str, str], list[Finding]] = {}
        self._bench = self._open_bench()

    def part(self) -> BuildPart:
        """Every task of the world, proven."""
        tasks: list[BuildTask] = []
        figures, dropped, known = Figures(), Counter[str](), set[tuple[Calls, WorldChange | None]]()
        order = [scenario for scenario, number in self._plan.quota.items() for _ in range(number)]
        self._rng.shuffle(order)
        for scenario in order:
            name = f"{self._plan.split}-{self._plan.name}-{len(tasks):05d}"
            task, gold = self._make_proven_task(scenario, name, known, dropped)
            tasks.append(task)
            figures.add(task, policy_scores(task, gold, self._try_name, self._rng))
        return BuildPart(
            name=self._plan.name,
            tasks=tuple(tasks),
            tools=tuple(self._declare_tool(function) for function in self._plan.toolkit.functions),
            codes=self._codes,
            data=to_sql(self._pack, self._world),
            figures=figures.by_scenario,
            dropped=dict(sorted(dropped.items())),
        )

    def _declare_tool(self, function: Function) -> dict[str, Any]:
        """A tool's file: the function runs where the loop runs, since it takes microseconds and is our own."""
        relation, name = next(iter(function.words)), self._world.names_by_kind[function.kind][0]
        value = self._world.facts[relation, name]
        test = {"arguments": function.arguments(relation, name), "expect": {"contains": str(value)}}
        target = {"kind": "python", "callable": f"../{CODE}:{function.name}", "isolation": "inline"}
        return {**function.declaration(), "target": target, "idempotent": True, "tests": [test]}

    def _make_proven_task(
        self, scenario: Scenario, name: str, known: set[tuple[Calls, WorldChange | None]], dropped: Counter[str]
    ) -> tuple[BuildTask, Solved]:
        for _ in range(_TRIES):
            try:
                task, graph, change = self._make_task(scenario, name)
                asked = graph.calls, change
                if asked in known:
                    raise ProofFailure("duplicate: the same is asked already")
                gold = self._prove_task(task, graph, change)
                check_twin(task, self._answer_by(graph, change, self._world.swapped))
            except ProofFailure as reason:
                dropped[str(reason)] += 1
            else:
                known.add(asked)
                return task, gold
        raise RlfError(
            f"{self._plan.name}: {_TRIES} tasks of the shape {scenario} in a row were dropped, most for "
            f"{dropped.most_common(1)[0][0]!r}. Give the worlds more things (`build.entities`) or fewer tasks."
        )

    def _prove_task(self, task: BuildTask, graph: FactGraph, change: WorldChange | None) -> Solved:
        """Scores the gold calls, made in tables of their own where one of them changes some. Raises Unproven."""
        if change is None:
            return prove_task(task, self._bench, self._documents)
        if self._answer_by(graph, None, self._world.facts) == task.answer:
            raise ProofFailure("change: the answer is the same without it")
        (seed,) = self._connections
        with closing(sqlite3.connect(":memory:")) as own:
            seed.backup(own)
            self._connections[:] = [own]
            try:
                return prove_task(task, ProofBench(self._bench.invoke), self._documents)
            finally:
                self._connections[:] = [seed]

    def _draw_change(self, graph: FactGraph) -> WorldChange | None:
        """A change of what the first call of the first chain finds, at times, where that is mutable."""
        chain, changes = graph.chains[0], self._plan.changes
        if not changes or not chain.relations[0].words.mutable or self._rng.random() >= changes:
            return None
        other = self._rng.choice(self._world.names_by_kind[chain.relations[0].subject])
        if other in {each.subject for each in graph.chains}:
            raise ProofFailure("change: it is of one thing with itself, or of two that are asked for")
        return WorldChange(chain.relations[0], (chain.subject, other))

    def _make_task(self, scenario: Scenario, name: str) -> tuple[BuildTask, FactGraph, WorldChange | None]:
        shape = self._shape
        graph = sample_graph(self._paths, self._world, scenario, shape.hops, shape.parallel, self._rng)
        change = self._draw_change(graph)
        facts = self._world.facts if change is None else change.applied(self._world.facts)
        values = [chain.follow(facts) for chain in graph.chains]
        if change is not None and any(change.names[1] in found for found in values):
            raise ProofFailure("graph: the question names a value that a call finds")
        if fault := graph.fault(values):
            raise ProofFailure(f"graph: {fault}")
        steps = self._make_steps(graph, values, change)
        ends = [found[-1] for found in values]
        task = BuildTask(
            id=name,
            split=self._plan.split,
            world=self._plan.name,
            scenario=scenario,
            question=self._word_question(graph, change),
            answer=graph.join.of(ends),
            join=graph.join,
            steps=tuple(steps),
            tools=self._choose_tools(steps),
            names=(*(chain.subject for chain in graph.chains), *(() if change is None else change.names[1:])),
            guess=self._guess_chance(graph),
        )
        return task, graph, change

    def _word_question(self, graph: FactGraph, change: WorldChange | None) -> str:
        question = graph.question(self._pack, self._words)
        if change is None:
            return question
        phrase = self._words.choice(change.relation.words.phrases)
        first, second = (phrase.format(x=name) for name in change.names)
        return self._words.choice(self._pack.asks.exchange).format(p=first, q=second, question=question)

    def _change_step(self, change: WorldChange) -> CallStep:
        """The call that makes a change, whose gold is its receipt."""
        relation, names = change.relation, change.names
        values = [self._world.facts[relation.name, name] for name in names]
        action = self._plan.toolkit.actions[relation.name]
        asked = " <-> ".join(relation.words.phrases[0].format(x=name) for name in names)
        number = stateful.receipt(relation.name, list(names), values)
        return CallStep(asked, action.name, action.arguments(relation.name, *names), number)

    def _make_steps(
        self, graph: FactGraph, values: list[list[str | int]], change: WorldChange | None
    ) -> list[CallStep]:
        steps = [] if change is None else [self._change_step(change)]
        for chain, found in zip(graph.chains, values, strict=True):
            for hop, (relation, value) in enumerate(zip(chain.relations, found, strict=True)):
                function = self._plan.toolkit.by_relation[relation.name]
                before = len(steps) - 1
                subject: Any = {REFERENCE: before} if hop else chain.subject
                shown = found[hop - 1] if hop else chain.subject
                asked = relation.words.phrases[0].format(x=shown)
                arguments = function.arguments(relation.name, subject)
                follows = hop > 0 or (change is not None and not before)
                steps.append(CallStep(asked, function.name, arguments, value, (before,) if follows else ()))
        return steps

    def _choose_tools(self, steps: list[CallStep]) -> tuple[str, ...]:
        """The tools that are needed, others of other families, then distractors; in an order that says nothing."""
        kit, rng = self._plan.toolkit, self._rng
        needed = list(dict.fromkeys(step.tool for step in steps))
        families = {kit.family_by_name[name] for name in needed}
        others = [function.name for function in kit.functions if function.name not in needed]
        near = [name for name in others if kit.family_by_name[name] in families]
        far = [name for name in others if kit.family_by_name[name] not in families]
        num_base = max(0, self._plan.base_tools - len(needed))
        num_extra = self._shape.complexity.num_distractors
        near = rng.sample(near, min(num_extra, len(near)))
        far = rng.sample(far, min(num_base + num_extra - len(near), len(far)))
        shown = [*needed, *near, *far]
        rng.shuffle(shown)
        return tuple(shown)

    def _guess_chance(self, graph: FactGraph) -> float:
        """Chance that the best constant guess is right, at the most: of a list all values, else one."""
        chances = [self._world.guesses[chain.relations[-1].name] for chain in graph.chains]
        if graph.join is not Join.LIST:
            return min(chances)
        product = 1.0
        for chance in chances:
            product *= chance
        return product

    def _answer_by(self, graph: FactGraph, change: WorldChange | None, facts: Facts) -> str:
        """The answer by the same graph over other values, which the same functions would return."""
        facts = facts if change is None else change.applied(facts)
        return graph.join.of([chain.follow(facts)[-1] for chain in graph.chains])

    def _try_name(self, tool: str, name: str) -> list[Finding]:
        """Calls a tool with a name, by each of its relations.

        A name of another kind is refused whatever it is: one call for each kind shows so.
        """
        function, kind = self._functions[tool], self._kind_by_name[name]
        name = name if function.kind == kind else self._world.names_by_kind[kind][0]
        found = self._tried.get((tool, name))
        if found is None:
            calls = [function.arguments(relation, name) for relation in function.words]
            found = self._tried[tool, name] = [self._bench.call(tool, arguments) for arguments in calls]
        return found

    @cached_property
    def _documents(self) -> SearchedText:
        texts = (json.dumps(function.declaration()) for function in self._functions.values())
        return SearchedText("\n".join(texts))

    def _open_bench(self) -> ProofBench:
        """The deployed functions over a database in memory."""
        namespace: dict[str, Any] = {"__name__": "deployed"}
        exec(_compiled_runtime(acts=self._plan.changes > 0), namespace)
        exec(compile("\n\n".join(self._codes.values()), "<tools>", "exec"), namespace)
        self._connections: list[sqlite3.Connection] = namespace["_CONNECTIONS"]
        self._connections.append(open_database(self._pack, self._world))
        return ProofBench(lambda tool, arguments: namespace[tool](**arguments))


@cache
def _compiled_runtime(*, acts: bool) -> CodeType:
    return compile("\n\n".join(shared_sources(acts=acts)), "<runtime>", "exec")


class GraphTools:
    """The tools of a built world of this builder, called where they lie."""

    def __init__(self, folder: Path) -> None:
        """Takes the world's folder. Raises RlfError where its spec or its module cannot be read."""
        path = folder / CODE
        self._namespace: dict[str, Any] = {"__name__": "deployed", "__file__": str(path.absolute())}
        spec = load_spec([folder / SPEC]).spec
        self._documents = {tool.name: tool for tool in spec.shown_tools}
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), self._namespace)
        self.keeps_state = "World" in self._namespace
        with closing(sqlite3.connect(folder / DATABASE)) as connection:
            kinds = [kind for (kind,) in connection.execute("SELECT DISTINCT kind FROM things ORDER BY kind")]
            place = "ROW_NUMBER() OVER (PARTITION BY world ORDER BY key)"
            query = f"SELECT {place}, world, name FROM things JOIN {{}} USING (key)"
            rows = [row for kind in kinds for row in connection.execute(query.format(f'"{kind}"'))]
        self._known: dict[tuple[str, str], KnownTool] = {}
        self._names: dict[str, list[str]] = {}
        for _, world, name in sorted(rows):  # one of each kind, then the next of each
            self._names.setdefault(world, []).append(name)

    def known(self, task: BuildTask, tool: str) -> KnownTool:
        """A tool by the spec. Raises ProofFailure."""
        if tool not in self._documents:
            raise ProofFailure("toolset: a tool of the task is not in the world's spec", tool)
        if (task.world, tool) not in self._known:
            document, names = self._documents[tool], self._names.get(task.world, [])
            known = KnownTool(tool, document.description, document.input_schema, names, is_dealt=True)
            self._known[task.world, tool] = known
        return self._known[task.world, tool]

    async def play(self, calls: Sequence[Call], moment: object = None) -> list[TriedCall]:
        """Plays calls, in tables of their own where they change some; the clock is not moved for them."""
        if not self.keeps_state:
            return [self._try_call(self._namespace, *call) for call in calls]
        world = self._namespace["World"]()
        try:
            world.reset()
            methods = {name: getattr(world, name) for name, _ in calls}
            return [self._try_call(methods, *call) for call in calls]
        finally:
            world.close()

    @staticmethod
    def _try_call(functions: Mapping[str, Any], tool: str, arguments: Mapping[str, Any]) -> TriedCall:
        try:
            return TriedCall(arguments, True, to_text(functions[tool](**arguments)))
        except Exception as fault:  # noqa: BLE001 - a tool may raise anything
            return TriedCall(arguments, False, f"{type(fault).__name__}: {fault}")

    def code(self, tool: str) -> None:
        """None: no model wrote it."""

    def close(self) -> None:
        """Closes the tables."""
        for connection in self._namespace["_CONNECTIONS"]:
            connection.close()
