"""One task after the other from a language model: FTRL's five stages, then the proof that every task must pass."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rlf.apps.build import client as answers
from rlf.apps.build.calls import GoldCall, KnownTool, fill_schema, gold_calls, list_leaves
from rlf.apps.build.client import SPENT, Client, Deployed, Document, Draft
from rlf.apps.build.kind import BuildPart, BuildShape, shares_of
from rlf.apps.build.plays import SandboxPlays, call_text, returned_value, run_call, source_of
from rlf.apps.build.probe import check_arguments, check_code, check_distractor, check_tool, check_ways
from rlf.apps.build.review import review_task
from rlf.apps.build.task import (
    REFERENCE,
    BuildTask,
    CallStep,
    Figures,
    ProofBench,
    ProofFailure,
    Scenario,
    check_calls,
    policy_scores,
    prove_task,
)
from rlf.core import RunError
from rlf.core.clocks import reporting_waits
from rlf.core.leaks import SearchedText
from rlf.core.readings import compile_schema
from rlf.rewards.normalization import normalize
from rlf.rewards.values import Finding, ValueKey, text_keys, value_key
from rlf.sandbox import Execution, RemoteSandbox, Sandbox, SandboxOutcome, SandboxSpec
from rlf.tools.outputs import to_text


@dataclass(frozen=True, slots=True)
class DeployedTool:
    """A deployed tool."""

    document: Document
    data: Mapping[str, Any]
    code: str
    calls: Mapping[int, Mapping[str, Any]]
    """The arguments of the call that answers each sub-question of it, with placeholders."""

    @property
    def source(self) -> str:
        """The file of its function."""
        return source_of(self.data, self.code)

    @property
    def known(self) -> KnownTool:
        """The tool as checks know it."""
        return KnownTool(self.document.name, self.document.description, self.document.parameters, self.data)

    def declaration(self, sandbox: SandboxSpec) -> dict[str, Any]:
        """The tool's file, which names the file with the source beside it."""
        name = self.document.name
        target = {"kind": "source", "file": f"{name}.py", "function": name}
        return {
            "name": name,
            "description": self.document.description,
            "inputSchema": dict(self.document.parameters),
            "target": {**target, "sandbox": sandbox.model_dump(mode="json", exclude_defaults=True)},
            "idempotent": True,
        }


@dataclass(frozen=True, slots=True)
class ProvenDraft:
    """A task without its place in the build, and its tools."""

    task: BuildTask
    functions: Sequence[DeployedTool]
    left_out: Mapping[str, int]
    """Distractors that it does without, by reason."""
    meaning: Mapping[str, float]
    """What a second model has judged; empty without one."""


class Stages:
    """The five stages for one task."""

    def __init__(
        self,
        client: Client,
        sandbox: Sandbox | RemoteSandbox,
        shape: BuildShape,
        contained: SandboxSpec,
        repairs: int,
        reviewer: Client | None,
    ) -> None:
        self.client, self.contained, self._reviewer = client, contained, reviewer
        self._sandbox, self._shape, self._repairs = sandbox, shape, repairs

    async def make(self, number: int, seed: str, scenario: Scenario, draw: int, spent: Counter[str]) -> ProvenDraft:
        """Makes a decomposed question and deploys its tools; `spent` gets the cost. Raises ProofFailure."""
        SPENT.set(spent)
        draft = await self._decompose(seed, scenario, draw)
        documents = await asyncio.gather(*(self._write_document(draft, at) for at in range(len(draft.steps))))
        merged, numbers = await self._integrate(draft, documents)
        scaled = [await self._scale(draft, document) for document in merged]
        extra = await self._distract(draft, scaled)
        names = [document.name for document in (*scaled, *extra)]
        if len(set(names)) < len(names):
            raise ProofFailure("toolset: two tools have one name")
        made = await asyncio.gather(*(self._deploy(draft, *each) for each in zip(scaled, numbers, strict=True)))
        task = _make_task(draft, scenario, made)
        left_out = Counter[str]()
        distractors = await asyncio.gather(*(self._deploy_distractor(draft, task, each, left_out) for each in extra))
        functions = [*made, *(each for each in distractors if each is not None)]
        task = replace(task, tools=tuple(function.document.name for function in functions))
        check_calls(task)
        await check_ways(task, {each.document.name: each.known for each in functions}, self._open_plays(functions))
        meaning: Mapping[str, float] = {}
        if self._reviewer is not None:
            meaning = await review_task(self._reviewer, task, [each.known for each in functions], number)
        return ProvenDraft(task, functions, left_out, meaning)

    async def _decompose(self, seed: str, scenario: Scenario, draw: int) -> Draft:
        shape = self._shape
        values = {"seed": seed, "scenario": scenario.value, "hops": shape.hops, "parallel": shape.parallel}
        check = partial(answers.check_draft, scenario=scenario, shape=shape)
        draft = await self.client.ask("decompose", Draft, values, check, draw=draw)
        found = await self.client.ask("verify", answers.Verdicts, draft.model_dump())
        for name, verdict in found.model_dump().items():
            if not verdict:
                raise ProofFailure(f"verify: {_REASONS[name]}")
        guess = await self.client.ask("answer", answers.Guess, {"question": draft.question})
        if normalize(str(guess.answer)) == normalize(draft.joined):
            raise ProofFailure("necessity: the model answers without a tool")
        return draft

    async def _write_document(self, draft: Draft, number: int) -> Document:
        check = partial(answers.check_document, draft=draft)
        return await self.client.ask("document", Document, {"step": draft.steps[number].model_dump()}, check)

    async def _integrate(self, draft: Draft, documents: Sequence[Document]) -> tuple[list[Document], list[list[int]]]:
        """The documents after integration, and the sub-questions of each."""
        if len(documents) == 1:
            return list(documents), [[0]]
        check = partial(answers.check_merge, documents=documents, draft=draft)
        shown = [document.model_dump() for document in documents]
        merge = await self.client.ask("integrate", answers.Merge, {"documents": shown}, check)
        return [Document(**tool.model_dump(exclude={"replaces"})) for tool in merge.tools], [
            sorted(tool.replaces) for tool in merge.tools
        ]

    async def _scale(self, draft: Draft, document: Document) -> Document:
        dials = self._shape.complexity
        if not (dials.function or dials.parameters or dials.types):
            return document
        may_require = dials.parameters == 3
        check = partial(answers.check_scaled, before=document, draft=draft, may_require=may_require)
        values = {"document": document.model_dump(), "complexity": dials.model_dump()}
        return await self.client.ask("scale", Document, values, check)

    async def _distract(self, draft: Draft, documents: Sequence[Document]) -> list[Document]:
        count = self._shape.complexity.num_distractors
        if not count:
            return []

        def check(found: answers.Distractors) -> None:
            if len(found.tools) != count:
                raise ValueError(f"there are {len(found.tools)} tools; expected {count}")
            for document in found.tools:
                answers.check_document(document, draft)

        steps = [step.model_dump() for step in draft.steps]
        shown = [document.model_dump() for document in documents]
        values = {"documents": shown, "steps": steps, "count": count}
        return list((await self.client.ask("distract", answers.Distractors, values, check)).tools)

    async def _deploy(self, draft: Draft, document: Document, numbers: Sequence[int]) -> DeployedTool:
        """The function, whose calls were made in the sandbox; asked for again with what was wrong."""

        async def check(made: DeployedTool, deployed: Deployed) -> None:
            await self._try_golds(draft, document, deployed)
            calls = _gold_calls(draft, document.name, made.calls)
            hidden = [step.answer for at, step in enumerate(draft.steps) if at not in made.calls]
            question, plays = SearchedText(draft.question), self._open_plays([made])
            await check_tool(made.known, calls, question, draft.joined, plays, hidden=hidden)
            check_code(made.code, made.known, calls)

        return await self._deploy_checked(draft, document, numbers, check)

    async def _deploy_distractor(
        self, draft: Draft, task: BuildTask, document: Document, left_out: Counter[str]
    ) -> DeployedTool | None:
        """A function that no gold call needs, and that finds nothing of the task; None where it cannot be had."""

        async def check(made: DeployedTool, _: Deployed) -> None:
            execution = await self._evaluate(made.source, f"callable({document.name})")
            if execution.outcome is not SandboxOutcome.OK:
                raise ProofFailure("deploy: it cannot be defined", str(execution.error))
            await check_distractor(made.known, task, self._open_plays([made]))

        try:
            return await self._deploy_checked(draft, document, (), check)
        except ProofFailure as fault:
            left_out[f"left out, {fault}"] += 1
            return None

    async def _deploy_checked(
        self,
        draft: Draft,
        document: Document,
        numbers: Sequence[int],
        check: Callable[[DeployedTool, Deployed], Awaitable[None]],
    ) -> DeployedTool:
        steps = [(number, draft.steps[number].model_dump()) for number in numbers]
        values: dict[str, Any] = {"document": document.model_dump(), "steps": steps, "reason": ""}
        fault = ProofFailure("deploy")
        for attempt in range(self._repairs + 1):
            own = partial(_check_draft_calls, document=document, numbers=numbers, draft=draft)
            deployed = await self.client.ask("deploy", Deployed, values, own, draw=attempt)
            calls = {call.step: call.arguments for call in deployed.calls}
            made = DeployedTool(document, deployed.data, deployed.code, calls)
            try:
                await check(made, deployed)
            except ProofFailure as found:
                fault, values = found, {**values, "reason": f"{found}: {found.detail}"}
                continue
            if attempt:
                SPENT.get()["repaired/deploy"] += 1
            return made
        raise ProofFailure(f"{fault} after {self._repairs} repairs", fault.detail)

    async def _try_golds(self, draft: Draft, document: Document, deployed: Deployed) -> None:
        """Makes a function's gold calls, and makes them over other data. Raises ProofFailure."""
        source = source_of(deployed.data, deployed.code)
        golds = {value_key(step.answer) for step in draft.steps}
        other_data = _swap_values(deployed.data, golds)
        if other_data == deployed.data:  # values that are computed change with the numbers that they are made of
            other_data = _swap_values(deployed.data, None)
        swapped = source_of(other_data, deployed.code)
        for call in deployed.calls:
            arguments = fill_arguments(call.arguments, draft)
            gold = draft.steps[call.step].answer
            shown = f"{document.name}(**{json.dumps(arguments, ensure_ascii=False)})"
            execution = await self._call_function(source, document.name, arguments)
            if execution.outcome is not SandboxOutcome.OK:
                late = execution.outcome is SandboxOutcome.TIMEOUT
                words = "deploy: it takes too long" if late else "deploy: it fails"
                raise ProofFailure(words, f"{shown} failed: {execution.outcome}: {execution.error}")
            if value_key(gold) not in text_keys(to_text(returned_value(execution))):
                words = f"{shown} returned {execution.value}; expected the value {gold!r} as a whole, or as a field"
                raise ProofFailure("deploy: it returns another value", words)
            other = await self._call_function(swapped, document.name, arguments)
            if other.outcome is SandboxOutcome.OK and value_key(gold) in text_keys(to_text(returned_value(other))):
                words = f"{shown} returns {gold!r} whatever `data` holds"
                raise ProofFailure("deploy: the code contains its answers", words)

    def _open_plays(self, functions: Sequence[DeployedTool]) -> SandboxPlays:
        sources = {function.document.name: function.source for function in functions}
        return SandboxPlays(self._sandbox, self.contained.limits, sources)

    async def _call_function(self, source: str, function: str, arguments: Mapping[str, Any]) -> Execution:
        return await self._evaluate(source, call_text(function, arguments))

    async def _evaluate(self, source: str, expression: str) -> Execution:
        execution = await run_call(self._sandbox, source, expression, self.contained.limits)
        if execution.outcome is SandboxOutcome.INFRA:
            raise RunError(f"the sandbox failed: {execution.error}. Run the build again: it continues.")
        return execution

    async def call(self, function: DeployedTool, arguments: Mapping[str, Any]) -> Any:
        """Calls a deployed function. Raises ValueError where it fails."""
        compile_schema(dict(function.document.parameters)).validate(dict(arguments))
        execution = await self._call_function(function.source, function.document.name, arguments)
        if execution.outcome is not SandboxOutcome.OK:
            raise ValueError(execution.error)
        return returned_value(execution)


_REASONS = {
    "dependency": "the dependencies are wrong",
    "atomic": "a sub-question is not atomic",
    "unforced": "a chain is forced",
    "complete": "there are too few or too many sub-questions",
}


def fill_arguments(arguments: Mapping[str, Any], draft: Draft) -> dict[str, Any]:
    """A draft's arguments with the answers of earlier sub-questions."""
    step = CallStep("", "", arguments, "", needs=tuple(range(len(draft.steps))))
    return dict(step.filled([step.answer for step in draft.steps]))


def _check_draft_calls(deployed: Deployed, document: Document, numbers: Sequence[int], draft: Draft) -> None:
    """Raises ValueError where calls are missing, break the schema, or name what they must not know."""
    if sorted(call.step for call in deployed.calls) != sorted(numbers):
        raise ValueError(f"`calls` must have one for each of the sub-questions {list(numbers)}")
    validator = compile_schema(dict(document.parameters))
    known = KnownTool(document.name, document.description, document.parameters, deployed.data)
    for call in deployed.calls:
        step = draft.steps[call.step]
        references = [leaf[REFERENCE] for _, leaf in list_leaves(call.arguments) if isinstance(leaf, Mapping)]
        if set(references) != set(step.needs):
            raise ValueError(f'the call of {call.step} must take {list(step.needs)} as {{"$step": n}}, and no others')
        if not validator.is_valid(fill_arguments(call.arguments, draft)):
            raise ValueError(f"the arguments of the call of {call.step} break the tool's schema")
        check_arguments(SearchedText(draft.question), call.arguments, known)
    if f"def {document.name}(" not in deployed.code:
        raise ValueError(f"`code` defines no function {document.name}")


def _swap_values(value: Any, golds: Collection[ValueKey | None] | None) -> Any:
    """Data with other values in place of the answers, or of all numbers where none are given; its keys stay."""
    if isinstance(value, Mapping):
        return {key: _swap_values(child, golds) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_swap_values(child, golds) for child in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number if golds is None else value_key(value) in golds):
        return value
    return value + 17 if is_number else f"{str(value)[::-1]} other"


def _gold_calls(draft: Draft, tool: str, calls: Mapping[int, Mapping[str, Any]]) -> list[GoldCall]:
    """The gold calls of one tool of a draft."""
    steps = [
        CallStep(step.question, tool, calls.get(at, {}), step.answer, step.needs) for at, step in enumerate(draft.steps)
    ]
    return [call for call in gold_calls(steps) if call.number in calls]


def _make_task(draft: Draft, scenario: Scenario, functions: Sequence[DeployedTool]) -> BuildTask:
    """The task, without its place in the build."""
    tool_by_step = {step: function for function in functions for step in function.calls}
    steps = tuple(
        CallStep(step.question, tool_by_step[at].document.name, tool_by_step[at].calls[at], step.answer, step.needs)
        for at, step in enumerate(draft.steps)
    )
    question = SearchedText(draft.question)
    leaves = [leaf for step in steps for _, leaf in list_leaves(step.arguments)]
    names = [str(leaf) for leaf in leaves if not isinstance(leaf, Mapping) and question.find(leaf)]
    return BuildTask(
        id="",
        split="",
        world="",
        scenario=scenario,
        question=draft.question,
        answer=draft.joined,
        join=draft.join,
        steps=steps,
        tools=tuple(function.document.name for function in functions),
        names=tuple(dict.fromkeys(names)),
    )


class LlmMaker:
    """Makes a part for each task; the next ones are under way meanwhile."""

    def __init__(
        self,
        runner: asyncio.Runner,
        stages: Stages,
        shape: BuildShape,
        seeds: Sequence[str],
        concurrency: int,
        *,
        count: int,
        seed: int,
    ) -> None:
        self._runner, self._stages, self._shape = runner, stages, shape
        self._seeds, self._concurrency, self._seed = seeds, concurrency, seed
        shares = shares_of(count, {scenario.value: share for scenario, share in shape.scenarios.items()})
        self._scenarios = [Scenario(name) for name, number in shares.items() for _ in range(number)]
        random.Random(f"scenarios:{seed}").shuffle(self._scenarios)
        splits = shares_of(count, shape.split.shares)
        self._splits = [name for name, number in splits.items() for _ in range(number)]
        random.Random(f"splits:{seed}").shuffle(self._splits)
        self.names: Sequence[str] = tuple(f"t{number:05d}" for number in range(count))
        self._spent: dict[int, Counter[str]] = {}
        self._drafts: dict[int, asyncio.Task[ProvenDraft]] = {}

    def make(self, name: str) -> BuildPart:
        """One task, or the reason why there is none."""
        number = self.names.index(name)
        dropped = Counter[str]()
        tasks: tuple[BuildTask, ...] = ()
        functions: Sequence[DeployedTool] = ()
        figures = Figures()
        meaning: Mapping[str, float] = {}
        try:
            draft = self._runner.run(self._await_draft(number))
            dropped.update(draft.left_out)
            meaning = draft.meaning
            tasks, functions = (self._prove_task(number, draft, figures),), draft.functions
        except ProofFailure as reason:
            dropped[str(reason)] += 1
            meaning = {"judged": 1, "refused": 1} if str(reason).startswith("review: ") else meaning
        return BuildPart(
            name=name,
            tasks=tasks,
            tools=tuple(each.declaration(self._stages.contained) for each in functions),
            codes={each.document.name: each.source for each in functions},
            figures=figures.by_scenario,
            dropped=dict(dropped),
            spent=dict(sorted(self._spent.pop(number).items())),
            meaning=meaning,
        )

    async def _await_draft(self, number: int) -> ProvenDraft:
        """The draft of a task; those of the next ones are begun."""
        for each in range(number, min(number + self._concurrency, len(self.names))):
            if each not in self._drafts:
                seed = self._seeds[each % len(self._seeds)]
                draw = each // len(self._seeds)
                spent = self._spent[each] = Counter()
                made = self._stages.make(each, seed, self._scenarios[each], draw, spent)
                self._drafts[each] = asyncio.get_running_loop().create_task(made)
        async with reporting_waits():
            return await self._drafts.pop(number)

    def _prove_task(self, number: int, draft: ProvenDraft, figures: Figures) -> BuildTask:
        """The task in its place, proven with the deployed functions in the sandbox."""
        by_name = {function.document.name: function for function in draft.functions}
        bench = ProofBench(lambda tool, arguments: self._runner.run(self._stages.call(by_name[tool], arguments)))
        tools = [*by_name]
        random.Random(f"tools:{self._seed}:{number}").shuffle(tools)
        split, world = self._splits[number], self.names[number]
        task = replace(draft.task, id=f"{split}-{world}", split=split, world=world, tools=tuple(tools))
        documents = [json.dumps(function.document.model_dump(), ensure_ascii=False) for function in draft.functions]
        gold = prove_task(task, bench, SearchedText("\n".join(documents)))

        def attempts(tool: str, name: str) -> list[Finding]:
            return [bench.call(tool, arguments) for arguments in fill_schema(by_name[tool].document.parameters, name)]

        rng = random.Random(f"policies:{self._seed}:{number}")
        figures.add(task, policy_scores(task, gold, attempts, rng))
        return task
