"""One task after the other from a language model: FTRL's five stages, then the proof that every task must pass."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlf.apps.build import client as answers
from rlf.apps.build.client import SPENT, Client, Deployed, Document, Draft
from rlf.apps.build.kind import BuildPart, BuildShape, shares_of
from rlf.apps.build.task import (
    REFERENCE,
    BuildTask,
    CallStep,
    Figures,
    ProofBench,
    ProofFailure,
    Scenario,
    policy_scores,
    prove,
)
from rlf.core import RunError
from rlf.core.readings import compile_schema
from rlf.rewards.normalization import normalize
from rlf.rewards.values import Finding, text_keys, value_key
from rlf.sandbox import Execution, RemoteSandbox, Sandbox, SandboxOutcome, SandboxSpec
from rlf.tools.kinds.source import call_text, evaluate, value_of
from rlf.tools.results import to_text

_MAX_CANDIDATES = 32
"""Arguments that a policy that tries everything gives a tool with one name."""


@dataclass(frozen=True, slots=True)
class DeployedTool:
    """A deployed tool."""

    document: Document
    source: str
    calls: Mapping[int, Mapping[str, Any]]
    """The arguments of the call that answers each sub-question of it, with placeholders."""

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


class Stages:
    """The five stages for one task."""

    def __init__(
        self,
        client: Client,
        sandbox: Sandbox | RemoteSandbox,
        shape: BuildShape,
        contained: SandboxSpec,
        repairs: int,
    ) -> None:
        self.client, self.contained = client, contained
        self._sandbox, self._shape, self._repairs = sandbox, shape, repairs

    async def make(
        self, seed: str, scenario: Scenario, draw: int, spent: Counter[str]
    ) -> tuple[Draft, list[DeployedTool]]:
        """Makes a decomposed question and deploys its tools; `spent` gets the cost. Raises Unproven."""
        SPENT.set(spent)
        draft = await self._decompose(seed, scenario, draw)
        documents = await asyncio.gather(*(self._write_document(draft, number) for number in range(len(draft.steps))))
        merged, numbers = await self._integrate(draft, documents)
        scaled = [await self._scale(draft, document) for document in merged]
        extra = await self._distract(draft, scaled)
        names = [document.name for document in (*scaled, *extra)]
        if len(set(names)) < len(names):
            raise ProofFailure("toolset: two tools have one name")
        steps = [*numbers, *([] for _ in extra)]
        deployed = (self._deploy(draft, *each) for each in zip((*scaled, *extra), steps, strict=True))
        return draft, list(await asyncio.gather(*deployed))

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
        steps = [(number, draft.steps[number].model_dump()) for number in numbers]
        values: dict[str, Any] = {"document": document.model_dump(), "steps": steps}
        reason = ""
        for attempt in range(self._repairs + 1):
            check = partial(_check_draft_calls, document=document, numbers=numbers, draft=draft)
            deployed = await self.client.ask("deploy", Deployed, {**values, "reason": reason}, check, draw=attempt)
            reason = await self._try_function(draft, document, deployed)
            if not reason:
                if attempt:
                    SPENT.get()["repaired/deploy"] += 1
                calls = {call.step: call.arguments for call in deployed.calls}
                return DeployedTool(document, source_of(deployed), calls)
        raise ProofFailure(f"deploy: {_sort_of(reason)} after {self._repairs} repairs")

    async def _try_function(self, draft: Draft, document: Document, deployed: Deployed) -> str:
        """Tries a function; describes its fault to the model, with empty text where there is none."""
        source = source_of(deployed)
        swapped = source_of(deployed.model_copy(update={"data": _swap_golds(deployed.data, draft)}))
        if not deployed.calls:
            execution = await self._evaluate(source, f"callable({document.name})")
            return "" if execution.outcome is SandboxOutcome.OK else f"it cannot be defined: {execution.error}"
        for call in deployed.calls:
            arguments = filled(call.arguments, draft)
            gold = draft.steps[call.step].answer
            shown = f"{document.name}(**{json.dumps(arguments, ensure_ascii=False)})"
            execution = await self._call_function(source, document.name, arguments)
            if execution.outcome is not SandboxOutcome.OK:
                return f"{shown} failed: {execution.outcome}: {execution.error}"
            if value_key(gold) not in text_keys(to_text(value_of(execution))):
                return f"{shown} returned {execution.value}; expected the value {gold!r} as a whole, or as a field"
            other = await self._call_function(swapped, document.name, arguments)
            if other.outcome is SandboxOutcome.OK and value_key(gold) in text_keys(to_text(value_of(other))):
                return f"{shown} returns {gold!r} whatever `data` holds: the code contains its answers"
        return ""

    async def _call_function(self, source: str, function: str, arguments: Mapping[str, Any]) -> Execution:
        return await self._evaluate(source, call_text(function, arguments))

    async def _evaluate(self, source: str, expression: str) -> Execution:
        execution = await evaluate(self._sandbox, source, expression, self.contained.limits)
        if execution.outcome is SandboxOutcome.INFRA:
            raise RunError(f"the sandbox failed: {execution.error}. Run the build again: it continues.")
        return execution

    async def call(self, function: DeployedTool, arguments: Mapping[str, Any]) -> Any:
        """Calls a deployed function. Raises ValueError where it fails."""
        compile_schema(dict(function.document.parameters)).validate(dict(arguments))
        execution = await self._call_function(function.source, function.document.name, arguments)
        if execution.outcome is not SandboxOutcome.OK:
            raise ValueError(execution.error)
        return value_of(execution)


_REASONS = {
    "dependency": "the dependencies are wrong",
    "atomic": "a sub-question is not atomic",
    "unforced": "a chain is forced",
    "complete": "there are too few or too many sub-questions",
}


def source_of(deployed: Deployed) -> str:
    """The file of a function: its data, then its code."""
    data = json.dumps(deployed.data, ensure_ascii=False)
    return f"import json\n\nDATA = json.loads({data!r})\n\n\n{deployed.code.strip()}\n"


def filled(arguments: Mapping[str, Any], draft: Draft) -> dict[str, Any]:
    """A draft's arguments with the answers of earlier sub-questions."""
    step = CallStep("", "", arguments, "", needs=tuple(range(len(draft.steps))))
    return dict(step.filled([step.answer for step in draft.steps]))


def _check_draft_calls(deployed: Deployed, document: Document, numbers: Sequence[int], draft: Draft) -> None:
    """Raises ValueError where calls are missing, break the schema, or name what they must not know."""
    if sorted(call.step for call in deployed.calls) != sorted(numbers):
        raise ValueError(f"`calls` must have one for each of the sub-questions {list(numbers)}")
    validator = compile_schema(dict(document.parameters))
    for call in deployed.calls:
        step = draft.steps[call.step]
        if set(_list_references(call.arguments)) != set(step.needs):
            raise ValueError(f'the call of {call.step} must take {list(step.needs)} as {{"$step": n}}, and no others')
        if not validator.is_valid(filled(call.arguments, draft)):
            raise ValueError(f"the arguments of the call of {call.step} break the tool's schema")
    if f"def {document.name}(" not in deployed.code:
        raise ValueError(f"`code` defines no function {document.name}")


def _list_references(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        if REFERENCE in value:
            yield value[REFERENCE]
        else:
            for child in value.values():
                yield from _list_references(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _list_references(child)


def _swap_golds(value: Any, draft: Draft) -> Any:
    """Data with other values in place of the answers; its keys stay."""
    golds = {value_key(step.answer) for step in draft.steps}
    if isinstance(value, Mapping):
        return {key: _swap_golds(child, draft) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_swap_golds(child, draft) for child in value]
    if value_key(value) not in golds:
        return value
    return f"{value[::-1]} other" if isinstance(value, str) else value + 17


def _sort_of(reason: str) -> str:
    """The sort of a fault, without what is the task's own."""
    sorts = {
        "timeout": "it takes too long",
        "whatever `data` holds": "the code contains its answers",
        "expected the value": "it returns another value",
        "cannot be defined": "it cannot be defined",
    }
    return next((words for sign, words in sorts.items() if sign in reason), "it fails")


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
        self._drafts: dict[int, asyncio.Task[tuple[Draft, list[DeployedTool]]]] = {}

    def make(self, name: str) -> BuildPart:
        """One task, or the reason why there is none."""
        number = self.names.index(name)
        dropped: dict[str, int] = {}
        tasks: tuple[BuildTask, ...] = ()
        functions: list[DeployedTool] = []
        figures = Figures()
        try:
            draft, functions = self._runner.run(self._await_draft(number))
            task = self._prove_task(number, draft, functions, figures)
            tasks = (task,)
        except ProofFailure as reason:
            dropped[str(reason)], functions = 1, []
        return BuildPart(
            name=name,
            tasks=tasks,
            tools=tuple(each.declaration(self._stages.contained) for each in functions),
            codes={each.document.name: each.source for each in functions},
            figures=figures.by_scenario,
            dropped=dropped,
            spent=dict(sorted(self._spent.pop(number).items())),
        )

    async def _await_draft(self, number: int) -> tuple[Draft, list[DeployedTool]]:
        """The draft of a task; those of the next ones are begun."""
        for each in range(number, min(number + self._concurrency, len(self.names))):
            if each not in self._drafts:
                seed = self._seeds[each % len(self._seeds)]
                draw = each // len(self._seeds)
                spent = self._spent[each] = Counter()
                made = self._stages.make(seed, self._scenarios[each], draw, spent)
                self._drafts[each] = asyncio.get_running_loop().create_task(made)
        return await self._drafts.pop(number)

    def _prove_task(self, number: int, draft: Draft, functions: Sequence[DeployedTool], figures: Figures) -> BuildTask:
        """The task, proven with the deployed functions in the sandbox."""
        by_name = {function.document.name: function for function in functions}
        bench = ProofBench(lambda tool, arguments: self._runner.run(self._stages.call(by_name[tool], arguments)))
        task = self._make_task(number, draft, functions)
        gold = prove(task, bench, frozenset())

        def attempts(tool: str, name: str) -> list[Finding]:
            tried = candidates(by_name[tool].document.parameters, name)[:_MAX_CANDIDATES]
            return [bench.call(tool, arguments) for arguments in tried]

        rng = random.Random(f"policies:{self._seed}:{number}")
        figures.add(task, policy_scores(task, gold, attempts, rng))
        return task

    def _make_task(self, number: int, draft: Draft, functions: Sequence[DeployedTool]) -> BuildTask:
        tool_by_step = {step: function for function in functions for step in function.calls}
        steps = tuple(
            CallStep(
                step.question,
                tool_by_step[at].document.name,
                tool_by_step[at].calls[at],
                step.answer,
                step.needs,
            )
            for at, step in enumerate(draft.steps)
        )
        tools = [function.document.name for function in functions]
        random.Random(f"tools:{self._seed}:{number}").shuffle(tools)
        given = [
            leaf for step in steps for leaf in _list_leaves(step.arguments) if answers.holds_word(draft.question, leaf)
        ]
        return BuildTask(
            id=f"{self._splits[number]}-{self.names[number]}",
            split=self._splits[number],
            world=self.names[number],
            scenario=self._scenarios[number],
            question=draft.question,
            answer=draft.joined,
            join=draft.join,
            steps=steps,
            tools=tuple(tools),
            names=tuple(dict.fromkeys(given)),
        )


def _list_leaves(value: Any) -> Iterator[str]:
    """The texts and numbers of arguments, as text."""
    if isinstance(value, Mapping):
        for child in () if REFERENCE in value else value.values():
            yield from _list_leaves(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _list_leaves(child)
    else:
        yield str(value)


def candidates(schema: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Possible arguments of a schema for a name: the name for every text, and every choice of an enum."""
    found: list[dict[str, Any]] = [{}]
    for each in schema.get("required", ()):
        values = _list_values(schema["properties"][each], name)
        found = [{**arguments, each: value} for arguments in found for value in values][:_MAX_CANDIDATES]
    return found


def _list_values(schema: Mapping[str, Any], name: str) -> list[Any]:
    if "enum" in schema:
        return list(schema["enum"])
    match schema.get("type"):
        case "integer" | "number":
            return [int(name) if name.lstrip("-").isdecimal() else schema.get("default", 1)]
        case "boolean":
            return [True, False]
        case "array":
            return [[value] for value in _list_values(schema.get("items", {}), name)]
        case "object":
            return list(candidates(schema, name))
    return [name]
