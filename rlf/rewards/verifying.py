"""An open `kind: verify` term: calls of the tool, golds that were run, verdicts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlf.core import RunError
from rlf.core.clocks import within
from rlf.core.text import describe
from rlf.endpoints.template import FilledValue, TemplateFault
from rlf.rewards.calling import OwnFunction, TookTooLong
from rlf.rewards.comparisons import COMPARISONS, NO_ROWS, ComparedSide, NothingToCompare, read_expected, read_result
from rlf.rewards.normalization import golds
from rlf.rewards.term import RewardContext, Scoring, Verdict
from rlf.types import Outcome, Task, ToolCall, ToolResult, Trajectory

# The last fenced block is the program; the language after the fence is not checked.
_BLOCK = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_MAX_REASON_CHARS = 200


class _CannotSay(Exception):
    """The verifier failed, which says nothing of the model."""


class _Unanswered(_CannotSay):
    """The tool did not answer, or the comparison failed: another time it may say."""


class _Wrong(Exception):
    """The model's product cannot be run, or the tool refuses it."""


class Verifier:
    """Scores trajectories; several at once. `close` ends what still runs."""

    def __init__(
        self,
        context: RewardContext,
        *,
        name: str,
        tool: str,
        templates: FilledValue,
        gold_templates: FilledValue | None,
        column: str | None,
        compare: str,
        tolerance: float | None,
        function: str | None,
        timeout_s: float,
        max_concurrency: int,
    ) -> None:
        """Takes the term's name, the tool and the templates of its arguments, and what its results are compared with.

        Args:
            gold_templates: arguments with which the tool says what is expected.
            column: the task's column with what is expected; neither of the two: the gold answers.
            compare: a name of `COMPARISONS`, `tests_passed`, or `callable` for the comparison by `function`.
        """
        self._context, self._name, self._tool, self._templates = context, name, tool, templates
        self._gold_templates, self._column, self._compare = gold_templates, column, compare
        self._tolerance, self._callable, self._timeout_s = tolerance, function, timeout_s
        self._permits = asyncio.Semaphore(max_concurrency)
        self._golds: dict[str, asyncio.Task[ToolResult]] = {}
        """Runs of golds, by their arguments."""
        self._has_warned = False
        self._function = None if function is None else OwnFunction(function, timeout_s)

    async def score(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        """Runs the tool and compares."""
        try:
            match self._compare:
                case "tests_passed":
                    return await self._run_tests(trajectory)
                case "callable":
                    return await self._by_function(trajectory)
            return await self._compare_best(trajectory)
        except _CannotSay as why:
            return Verdict(None, str(why)[:_MAX_REASON_CHARS], is_unanswered=isinstance(why, _Unanswered))
        except _Wrong as why:
            return Verdict(0.0, str(why)[:_MAX_REASON_CHARS])

    async def close(self) -> None:
        """Ends the runs of golds that are still under way."""
        running = [task for task in self._golds.values() if not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _compare_best(self, trajectory: Trajectory) -> Verdict:
        """The best over what is expected, of which any will do."""
        expected = await self._find_expected(trajectory.task)
        got = await self._run_produced(trajectory)
        compare, tolerance = COMPARISONS[self._compare], self._tolerance
        try:
            results = [compare(read_result(got), each, tolerance) for each in expected]
        except NothingToCompare as why:
            raise _CannotSay(f"what is expected: {why}") from why
        except RecursionError as fault:
            raise _Wrong("its values are nested too deeply to compare") from fault
        if any(reason == NO_ROWS for _, reason in results):
            self._warn_of_no_rows(trajectory.task)
        return Verdict(*max(results, key=lambda result: result[0]))

    def _warn_of_no_rows(self, task: Task) -> None:
        """Warns once: a gold without rows says that every query without rows is right."""
        if not self._has_warned:
            words = f"{self._name}: task {task.id} expects no rows, so any query without rows earns 1"
            self._context.notify("warning", f"{words}. Leave such tasks out of the data. Reported once.")
        self._has_warned = True

    async def _find_expected(self, task: Task) -> list[ComparedSide]:
        expectation = await self._read_expectation(task)
        if isinstance(expectation, ToolResult):
            return [read_result(expectation)]
        return [read_expected(gold) for gold in expectation] if self._column is None else [read_expected(expectation)]

    async def _read_expectation(self, task: Task) -> Any:
        """The column's value, the gold's result, or every gold answer. Raises _CannotSay."""
        if self._gold_templates is not None:
            return await self._run_gold(task, self._gold_templates)
        if self._column is None:
            answers = golds(task.answer)
            if not answers:
                raise _CannotSay(f"task {task.id} has no gold answer")
            return answers
        value = task.columns.get(self._column)
        if value is None:
            raise _CannotSay(f"task {task.id} has no value in column {self._column!r}")
        return value

    async def _run_gold(self, task: Task, templates: FilledValue) -> ToolResult:
        """The tool's result for the gold, run once however many trajectories ask."""
        try:
            arguments = gold_arguments(templates, task)
        except TemplateFault as fault:
            raise _CannotSay(f"the gold of task {task.id}: {fault}") from fault
        key = json.dumps(arguments, sort_keys=True, default=repr)
        if key not in self._golds:
            name = hashlib.sha256(key.encode()).hexdigest()[:16]  # the same whichever task asks first
            self._golds[key] = asyncio.ensure_future(self._call_tool(arguments, f"gold/{name}"))
        try:
            result = await asyncio.shield(self._golds[key])
        except _CannotSay:
            self._golds.pop(key, None)
            raise
        if result.outcome.is_infrastructure:
            self._golds.pop(key, None)
        if result.outcome is not Outcome.OK:
            kind = _Unanswered if result.outcome.is_infrastructure else _CannotSay
            raise kind(f"the gold of task {task.id}: {result.outcome}: {result.text}")
        if _is_cut(result):
            raise _CannotSay(f"the gold of task {task.id}: its result is longer than the tool's limits allow")
        return result

    async def _run_produced(self, trajectory: Trajectory, number: int = 0, **further: str) -> ToolResult:
        """The tool's result for the model's product. Raises _Wrong or _CannotSay."""
        result = await self._run_tool(trajectory, number, **further)
        if result.outcome is not Outcome.OK:
            raise _Wrong(f"{self._tool}: {result.outcome}: {result.text}")
        if _is_cut(result):
            raise _Wrong(f"{self._tool}: its result is longer than the tool's limits allow")
        return result

    async def _run_tool(self, trajectory: Trajectory, number: int, **further: str) -> ToolResult:
        try:
            arguments = self._templates.fill(
                {**_offer_task(trajectory.task), **_offer_trajectory(trajectory), **further}, whole=True
            )
        except TemplateFault as fault:
            raise _Wrong(f"nothing to verify: {fault}") from fault
        result = await self._call_tool(arguments, f"{trajectory.id}/{number}")
        if result.outcome.is_infrastructure or result.outcome is Outcome.UNKNOWN_TOOL:
            raise _Unanswered(f"{self._tool}: {result.outcome}: {result.text}")
        return result

    async def _call_tool(self, arguments: Mapping[str, Any], name: str) -> ToolResult:
        """One call, apart from every other: what the tool holds for it is given back. Raises _Unanswered in time."""
        tools, id_ = self._context.tools, f"verify/{self._name}/{name}"
        async with self._permits:
            try:
                with within(self._timeout_s):
                    return await tools.invoke(ToolCall(self._tool, arguments), trajectory_id=id_)
            except TimeoutError as error:
                raise _Unanswered(f"{self._tool}: no result within {self._timeout_s:g} s") from error
            finally:
                await tools.end_trajectory(id_)

    async def _run_tests(self, trajectory: Trajectory) -> Verdict:
        """The share of the tests that pass, each in a call of its own."""
        tests = await self._read_expectation(trajectory.task)
        if isinstance(tests, str):
            listed = read_expected(tests)
            tests = listed.value if isinstance(listed.value, list) else [tests]
        if not isinstance(tests, Sequence) or not tests:
            raise _CannotSay(f"task {trajectory.task.id} has no list of tests")
        failures = await asyncio.gather(*(self._run_test(trajectory, at, str(test)) for at, test in enumerate(tests)))
        unsaid = next((why for why in failures if isinstance(why, _CannotSay)), None)
        if unsaid is not None:
            raise unsaid
        failed = [str(why) for why in failures if why is not None]
        first = f"; the first that fails: {failed[0]}" if failed else ""
        num_passed = len(failures) - len(failed)
        return Verdict(num_passed / len(failures), f"{num_passed} of {len(failures)} tests{first}"[:_MAX_REASON_CHARS])

    async def _run_test(self, trajectory: Trajectory, number: int, test: str) -> _Wrong | _CannotSay | None:
        """Why a test does not pass; None where it does."""
        try:
            await self._run_produced(trajectory, number, test=test)
        except (_Wrong, _CannotSay) as why:
            return why
        return None

    async def _by_function(self, trajectory: Trajectory) -> Verdict:
        assert self._function is not None, "compare: callable without a callable"
        expected, got = await self._read_expectation(trajectory.task), await self._run_produced(trajectory)
        try:
            value = await self._function(got, expected, **self._function.taken(trajectory.task.columns, after=2))
            return Verdict(None, f"{self._callable} returned None") if value is None else Verdict(float(value))
        except RunError:
            raise
        except (Exception, SystemExit) as fault:
            words = str(fault) if isinstance(fault, TookTooLong) else describe(fault)
            raise _Unanswered(f"{self._callable}: {words}") from fault


def _is_cut(result: ToolResult) -> bool:
    """Whether text is missing; missing rows are reported with the rows."""
    return result.structured is None and read_result(result).is_cut


def gold_arguments(templates: FilledValue, task: Task) -> dict[str, Any]:
    """The arguments of the gold's call. Raises TemplateFault."""
    arguments: dict[str, Any] = templates.fill(_offer_task(task), whole=True)
    return arguments


def _offer_task(task: Task) -> dict[str, Any]:
    """The task's values for templates."""
    answers = golds(task.answer)
    gold = {"gold": answers[0]} if answers else {}
    return {"question": task.question, "columns": task.columns, **gold}


def _offer_trajectory(trajectory: Trajectory) -> dict[str, Any]:
    """The trajectory's values for templates; what the model did not produce is undefined."""
    calls = [
        {"name": r.call.name, "arguments": r.call.arguments, "outcome": str(r.result.outcome), "result": r.result.text}
        for r in trajectory.calls
    ]
    made: dict[str, Any] = {"calls": calls}
    if trajectory.answer is not None:
        made["answer"] = trajectory.answer
    blocks = _BLOCK.findall("\n".join((*(turn.text for turn in trajectory.turns), trajectory.answer or "")))
    if blocks:
        made["code"] = blocks[-1]
    return made
