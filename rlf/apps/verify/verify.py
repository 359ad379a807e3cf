"""`kind: verify`: a declared tool runs what the model produced, and its result is compared with what is expected."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rlf.apps.verify.comparisons import COMPARISONS, NO_ROWS, NothingToCompare, as_rows, read_expected, read_result
from rlf.core import RunError, nearest
from rlf.core.callables import CallableName
from rlf.core.clocks import within
from rlf.core.definitions import find_definition
from rlf.core.kinds import StrictModel, wrong_value
from rlf.core.text import describe
from rlf.endpoints.template import FilledValue, TemplateFault
from rlf.rewards.calling import OwnFunction, TookTooLong, check_function
from rlf.rewards.normalization import golds
from rlf.rewards.term import RewardContext, Scorer, Scoring, Term, Verdict
from rlf.types import Outcome, Task, ToolCall, ToolResult, Trajectory

PRODUCED = ("answer", "calls", "code")
"""What templates of `arguments` may name beside a task's own; with `compare: tests_passed` also `test`."""
ASKED = ("question", "gold", "columns")
"""What the task itself offers to every template."""
_ONE_TEXT = (
    "one text holds both the test and the model's code, which could then pass any test. Write two "
    "arguments, e.g. {program: '{{ code }}', test: '{{ test }}'}, of a tool with `target: {kind: code, argument: test, "
    "program: program}`."
)
_COLUMN = re.compile(r"\bcolumns\.([A-Za-z_]\w*)")


class ResultMatch(StrEnum):
    """When the tool's result counts as what is expected."""

    EQUAL = "equal"
    """Both texts are the same, white space at the ends aside."""
    NUMERIC = "numeric"
    """The last number of both texts is the same, within `tolerance`."""
    ROWS_SET = "rows_set"
    """The same rows occur, in any order and any number of times; names of columns do not count."""
    ROWS_MULTISET = "rows_multiset"
    """The same rows occur equally often, in any order."""
    ROWS_ORDERED = "rows_ordered"
    """The rows are the same, one after the other."""
    TESTS_PASSED = "tests_passed"
    """The share of the tests in `expected` that the tool runs to `ok`, each in a call of its own. Test and program are
    two arguments: in one text the program could pass any test."""
    JSON_SUBSET = "json_subset"
    """The tool's JSON has every key and value that is expected; numbers within `tolerance`."""
    CALLABLE = "callable"
    """What a function of yours says: `callable`."""


_ROWS = (ResultMatch.ROWS_SET, ResultMatch.ROWS_MULTISET, ResultMatch.ROWS_ORDERED)
_NEAR = (ResultMatch.NUMERIC, ResultMatch.JSON_SUBSET, *_ROWS)


def _are_templates(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        FilledValue(arguments)
    except TemplateFault as fault:
        raise wrong_value(f"got {fault.source!r}: {fault}. Fix the template.") from fault
    return arguments


Arguments = Annotated[Mapping[str, Any], AfterValidator(_are_templates)]
"""Arguments of a call; texts are Jinja2, one that is a single `{{ expression }}` keeps the expression's type."""


class Expected(StrictModel):
    """Where what is expected comes from: one of the keys."""

    column: str | None = None
    """Column with it; text that is JSON is read as such. With `tests_passed` a list of tests."""
    arguments: Arguments | None = None
    """The same tool is called with these too, over `question`, `gold` and `columns`; it is called once for a task."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.column is None) == (self.arguments is None):
            raise wrong_value("got both or neither; expected one of column and arguments. Write e.g. `{column: rows}`.")
        return self


class VerifyTerm(Term):
    """1 where a tool, run on what the model produced, says what is expected, else 0; with tests the share that passes.

    Calls are made apart from the trajectory's own, and what the tool holds for them is given back after each. What the
    model produced counts as 0 with the reason when the tool refuses it or runs out of time over it, and where there is
    nothing to run. The verifier's own failure leaves the trajectory unscorable: infrastructure, a gold that fails, a
    column that is not there.
    """

    CONDITIONS: ClassVar[str] = "rlf.apps.verify.conditions"

    kind: Literal["verify"] = "verify"
    tool: str
    """Name of a declared tool; `hidden: true` keeps it from the model."""
    arguments: Arguments
    """Arguments of the call, texts as Jinja2 over `answer`, `calls` (each with `name`, `arguments`, `outcome` and
    `result`), `code` (the last fenced block of what was sampled), `question`, `gold`, `columns`; with `tests_passed`
    also `test`."""
    expected: Expected | None = None
    """What it is compared with; None: the task's gold answers, any of them."""
    compare: ResultMatch = ResultMatch.EQUAL
    tolerance: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """How far numbers may lie apart, of `numeric`, `json_subset` and rows: relative to numbers beyond 1, absolute
    within. Two whole numbers of rows must be equal. None: 1e-6; of rows 1e-6, beyond 1000 a billionth."""
    callable: CallableName | None = None
    """With `compare: callable`: `fn(result, expected, **columns)` gives a number within 0 and 1, or None. `result` is
    the tool's result, `expected` the column's value, the result for the gold, or the gold answers. It is called as
    one of `kind: python` is; where it raises, or gives no number in time, the trajectory is unscorable."""
    timeout_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Time that one call has, of the tool or of `callable`. More than the tool's own limit, at which the call is worth
    0; past it the trajectory is unscorable."""
    max_concurrency: int = Field(default=16, ge=1)
    """Calls of this term that run at once."""

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        test = ("test",) if self.compare is ResultMatch.TESTS_PASSED else ()
        _refuse_unknown("arguments", self.templates.names, (*PRODUCED, *test, *ASKED))
        if self.gold_templates is not None:
            _refuse_unknown("expected.arguments", self.gold_templates.names, ASKED)
        return self

    @model_validator(mode="after")
    def _comparison_applies(self) -> Self:
        by_column = self.expected is not None and self.expected.column is not None
        if (self.compare is ResultMatch.CALLABLE) != (self.callable is not None):
            raise wrong_value("`compare: callable` and `callable` go together. Write both or neither.")
        if self.compare is ResultMatch.TESTS_PASSED and not by_column:
            raise wrong_value("tests_passed needs the tests. Write e.g. `expected: {column: tests}`.")
        if self.compare is ResultMatch.TESTS_PASSED and "test" not in self.templates.names:
            raise wrong_value(
                "tests_passed runs each test, but no argument names `test`. Write e.g. `test: '{{ test }}'`."
            )
        if any("test" in text.names and text.names & set(PRODUCED) for text in self.templates.templates):
            raise wrong_value(_ONE_TEXT)
        if self.tolerance is not None and self.compare not in _NEAR:
            raise wrong_value(f"{self.compare} takes no tolerance. Remove it, or write compare: numeric.")
        return self

    @cached_property
    def templates(self) -> FilledValue:
        """The arguments with their texts parsed."""
        return FilledValue(self.arguments)

    @cached_property
    def gold_templates(self) -> FilledValue | None:
        """The same of the gold's arguments; None where the gold is not run."""
        if self.expected is None or self.expected.arguments is None:
            return None
        return FilledValue(self.expected.arguments)

    @cached_property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Columns that must be there, with the key that names each."""
        texts: dict[tuple[str, ...], Mapping[str, Any]] = {("arguments",): self.arguments}
        if self.expected is not None and self.expected.arguments is not None:
            texts["expected", "arguments"] = self.expected.arguments
        found = {name: key for key, arguments in texts.items() for name in _COLUMN.findall(repr(arguments))}
        if self.expected is not None and self.expected.column is not None:
            found[self.expected.column] = ("expected", "column")
        return found

    def misread_keys(self, datasets: Sequence[Sequence[Task]]) -> Iterator[tuple[str, str]]:
        """What is expected, where the data states that it is no rows; what a gold query finds is not looked at."""
        if self.compare not in _ROWS or self.gold_templates is not None:
            return
        number = sum(self._expects_no_rows(task) for tasks in datasets for task in tasks)
        message = f"{number} of {sum(map(len, datasets))} tasks expect no rows, so any query without rows earns 1. "
        if number:
            yield "expected", f"{message}Leave these tasks out of the data."

    def _expects_no_rows(self, task: Task) -> bool:
        expected = task.answer if self.expected is None else task.columns.get(self.expected.column or "")
        return as_rows(read_expected(expected).value) == []

    def gold_call(self, task: Task, tools: Collection[str]) -> ToolCall | None:
        """The call that finds what is expected, where a call does."""
        if self.tool not in tools or self.gold_templates is None:
            return None
        return ToolCall(self.tool, gold_arguments(self.gold_templates, task))

    def prepare(self) -> None:
        if self.callable is not None:
            check_function(self.callable)

    def prepare_unrun(self) -> None:
        if self.callable is not None:
            find_definition(self.callable)

    @asynccontextmanager
    async def open(self, context: RewardContext) -> AsyncIterator[Scorer]:
        """The tool, with the golds that were run."""
        verifier = Verifier(self, context)
        try:
            yield verifier
        finally:
            await verifier.close()


def _refuse_unknown(key: str, names: frozenset[str], known: tuple[str, ...]) -> None:
    unknown = sorted(names - set(known))
    if unknown:
        close = nearest(unknown[0], list(known))
        raise wrong_value(f"{key} names {unknown[0]!r}{close} (known: {', '.join(known)}). Name one of these.")


# The open term: calls of the tool, golds that were run, verdicts.

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

    def __init__(self, term: VerifyTerm, context: RewardContext) -> None:
        self._term, self._context = term, context
        self._column = None if term.expected is None else term.expected.column
        self._permits = asyncio.Semaphore(term.max_concurrency)
        self._golds: dict[str, asyncio.Task[ToolResult]] = {}
        """Runs of golds, by their arguments."""
        self._has_warned = False
        self._function = None if term.callable is None else OwnFunction(term.callable, term.timeout_s)

    async def score(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        """Runs the tool and compares."""
        try:
            match self._term.compare:
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
        expectation = await self._read_expectation(trajectory.task)
        if isinstance(expectation, ToolResult):
            expected = [read_result(expectation)]
        else:
            expected = [read_expected(each) for each in (expectation if self._column is None else [expectation])]
        got = await self._run_produced(trajectory)
        compare, tolerance = COMPARISONS[self._term.compare], self._term.tolerance
        try:
            results = [compare(read_result(got), each, tolerance) for each in expected]
        except NothingToCompare as why:
            raise _CannotSay(f"what is expected: {why}") from why
        except RecursionError as fault:
            raise _Wrong("its values are nested too deeply to compare") from fault
        if any(reason == NO_ROWS for _, reason in results) and not self._has_warned:
            words = f"{self._term.name}: task {trajectory.task.id} expects no rows, so any query without rows earns 1"
            self._context.notify("warning", f"{words}. Leave such tasks out of the data. Reported once.")
            self._has_warned = True
        return Verdict(*max(results, key=lambda result: result[0]))

    async def _read_expectation(self, task: Task) -> Any:
        """The column's value, the gold's result, or every gold answer. Raises _CannotSay."""
        if self._term.gold_templates is not None:
            return await self._run_gold(task, self._term.gold_templates)
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
            raise _Wrong(f"{self._term.tool}: {result.outcome}: {result.text}")
        if _is_cut(result):
            raise _Wrong(f"{self._term.tool}: its result is longer than the tool's limits allow")
        return result

    async def _run_tool(self, trajectory: Trajectory, number: int, **further: str) -> ToolResult:
        try:
            arguments = self._term.templates.fill(
                {**_offer_task(trajectory.task), **_offer_trajectory(trajectory), **further}, whole=True
            )
        except TemplateFault as fault:
            raise _Wrong(f"nothing to verify: {fault}") from fault
        result = await self._call_tool(arguments, f"{trajectory.id}/{number}")
        if result.outcome.is_infrastructure or result.outcome is Outcome.UNKNOWN_TOOL:
            raise _Unanswered(f"{self._term.tool}: {result.outcome}: {result.text}")
        return result

    async def _call_tool(self, arguments: Mapping[str, Any], name: str) -> ToolResult:
        """One call, apart from every other: what the tool holds for it is given back. Raises _Unanswered in time."""
        tools, id_ = self._context.tools, f"verify/{self._term.name}/{name}"
        async with self._permits:
            try:
                with within(self._term.timeout_s):
                    return await tools.invoke(ToolCall(self._term.tool, arguments), trajectory_id=id_)
            except TimeoutError as error:
                raise _Unanswered(f"{self._term.tool}: no result within {self._term.timeout_s:g} s") from error
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
            return Verdict(None, f"{self._term.callable} returned None") if value is None else Verdict(float(value))
        except RunError:
            raise
        except (Exception, SystemExit) as fault:
            words = str(fault) if isinstance(fault, TookTooLong) else describe(fault)
            raise _Unanswered(f"{self._term.callable}: {words}") from fault


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
