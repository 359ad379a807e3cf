"""`kind: verify`: a declared tool runs what the model produced, and its result is compared with what is expected."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rlf.core import nearest
from rlf.core.callables import CallableName
from rlf.core.definitions import find_definition
from rlf.core.kinds import StrictModel, wrong_value
from rlf.endpoints.template import FilledValue, TemplateFault
from rlf.rewards.calling import check_function
from rlf.rewards.comparisons import as_rows, read_expected
from rlf.rewards.term import RewardContext, Scorer, Term
from rlf.types import Task

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


class Compare(StrEnum):
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


_ROWS = (Compare.ROWS_SET, Compare.ROWS_MULTISET, Compare.ROWS_ORDERED)
_NEAR = (Compare.NUMERIC, Compare.JSON_SUBSET, *_ROWS)


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

    kind: Literal["verify"] = "verify"
    tool: str
    """Name of a declared tool; `hidden: true` keeps it from the model."""
    arguments: Arguments
    """Arguments of the call, texts as Jinja2 over `answer`, `calls` (each with `name`, `arguments`, `outcome` and
    `result`), `code` (the last fenced block of what was sampled), `question`, `gold`, `columns`; with `tests_passed`
    also `test`."""
    expected: Expected | None = None
    """What it is compared with; None: the task's gold answers, any of them."""
    compare: Compare = Compare.EQUAL
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
        test = ("test",) if self.compare is Compare.TESTS_PASSED else ()
        _refuse_unknown("arguments", self.templates.names, (*PRODUCED, *test, *ASKED))
        if self.gold_templates is not None:
            _refuse_unknown("expected.arguments", self.gold_templates.names, ASKED)
        return self

    @model_validator(mode="after")
    def _comparison_applies(self) -> Self:
        by_column = self.expected is not None and self.expected.column is not None
        if (self.compare is Compare.CALLABLE) != (self.callable is not None):
            raise wrong_value("`compare: callable` and `callable` go together. Write both or neither.")
        if self.compare is Compare.TESTS_PASSED and not by_column:
            raise wrong_value("tests_passed needs the tests. Write e.g. `expected: {column: tests}`.")
        if self.compare is Compare.TESTS_PASSED and "test" not in self.templates.names:
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

    @property
    def may_expect_no_rows(self) -> bool:
        """Whether the data can state it: False where only running the gold query can show it."""
        return self.compare in _ROWS and self.gold_templates is None

    def expects_no_rows(self, task: Task) -> bool:
        """Whether the data states that a task's gold query finds no rows."""
        if not self.may_expect_no_rows:
            return False
        expected = task.answer if self.expected is None else task.columns.get(self.expected.column or "")
        return as_rows(read_expected(expected).value) == []

    def prepare(self) -> None:
        if self.callable is not None:
            check_function(self.callable)

    def prepare_unrun(self) -> None:
        if self.callable is not None:
            find_definition(self.callable)

    def open(self, context: RewardContext) -> AbstractAsyncContextManager[Scorer]:
        """The tool, with the golds that were run."""
        return self._open_scorer(context)

    @asynccontextmanager
    async def _open_scorer(self, context: RewardContext) -> AsyncIterator[Scorer]:
        from rlf.rewards.verifying import Verifier

        verifier = Verifier(
            context,
            name=self.name,
            tool=self.tool,
            templates=self.templates,
            gold_templates=self.gold_templates,
            column=None if self.expected is None else self.expected.column,
            compare=self.compare,
            tolerance=self.tolerance,
            function=self.callable,
            timeout_s=self.timeout_s,
            max_concurrency=self.max_concurrency,
        )
        try:
            yield verifier
        finally:
            await verifier.close()


def _refuse_unknown(key: str, names: frozenset[str], known: tuple[str, ...]) -> None:
    unknown = sorted(names - set(known))
    if unknown:
        close = nearest(unknown[0], list(known))
        raise wrong_value(f"{key} names {unknown[0]!r}{close} (known: {', '.join(known)}). Name one of these.")
