"""All runs at a glance: one line each."""

from __future__ import annotations

import ast
import json
import operator
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlf.core import RlfError, nearest
from rlf.core.mistakes import in_our_words
from rlf.types.events import RunStatus

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.lineage.records import Evaluation, RunLine

# Which runs a person means: `success > 0.8 and spec == "search" and started > -7d`.
#
# An expression of names, numbers, quoted texts, `and`, `or`, `not`, `in` and comparisons; nothing else is evaluated.
# A comparison with what a run has not is false.

Facts = Mapping[str, Any]
Test = Callable[[Facts], Any]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
# `7d` is not Python: it is rewritten to seconds before the filter is parsed. Quoted text stays as it is.
_SPAN = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([smhdw])\b")
_QUOTED = re.compile(r"(\"[^\"]*\"|'[^']*')")
_MAX_CHARS = 1000
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


def compile_filter(text: str, names: Mapping[str, str]) -> Test:
    """The test that an expression is.

    Args:
        names: what it may speak of, with what each is.

    Raises:
        RlfError: it is no such expression, or speaks of something else.
    """
    if len(text) > _MAX_CHARS:
        raise _make_refusal(text[:40] + "...", f"longer than {_MAX_CHARS} characters")
    try:
        # `7d` as the number of its seconds, outside quotes.
        parts = _QUOTED.split(text)
        parts[::2] = [_SPAN.sub(lambda m: str(float(m[1]) * _UNITS[m[2]]), part) for part in parts[::2]]
        tree = ast.parse("".join(parts).strip(), mode="eval")
    except SyntaxError as error:
        meant = in_our_words("filter", text)
        if meant != text:
            raise RlfError(f"{text!r}: {error.msg}. Write `{meant}`.") from error
        raise _make_refusal(text, f"{error.msg}") from error
    return _compile_node(tree.body, text, names)


def _compile_node(node: ast.expr, text: str, names: Mapping[str, str]) -> Test:
    def part(child: ast.expr) -> Test:
        return _compile_node(child, text, names)

    match node:
        case ast.BoolOp(op=op, values=values):
            tests, join = [part(value) for value in values], all if isinstance(op, ast.And) else any
            return lambda facts: join(test(facts) for test in tests)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            test = part(operand)
            return lambda facts: not test(facts)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda facts: -number
        case ast.Compare(left=left, ops=ops, comparators=rights):
            if all(type(op) in _COMPARE for op in ops):
                return _make_comparison(
                    [part(side) for side in (left, *rights)], [_COMPARE[type(op)] for op in ops], text
                )
        case ast.Name(id=name):
            if name not in names:
                if text.strip() == name:
                    raise RlfError(f"{text!r}: a filter compares. Write e.g. `spec == {json.dumps(name)}`.")
                words = f"unknown name {name!r}{nearest(name, list(names))} (known: {', '.join(names)})"
                raise _make_refusal(text, words)
            return lambda facts: facts.get(name)
        case ast.Constant(value=str() | int() | float() as value):
            return lambda facts: value
    raise _make_refusal(text, f"`{ast.unparse(node)}` is not understood")


def _make_comparison(sides: list[Test], compare: list[Callable[[Any, Any], bool]], text: str) -> Test:
    def test(facts: Facts) -> bool:
        values = [side(facts) for side in sides]
        try:
            return all(
                left is not None and right is not None and holds(left, right)
                for left, holds, right in zip(values, compare, values[1:], strict=False)
            )
        except TypeError as error:
            raise _make_refusal(text, f"compares unlike things: {error}") from error

    return test


def _make_refusal(text: str, reason: str) -> RlfError:
    return RlfError(f'{text!r}: {reason}. Write e.g. `success > 0.8 and spec == "search" and started > -7d`.')


@dataclass(frozen=True, slots=True)
class Overview:
    """One run's line."""

    run_id: str
    name: str
    status: RunStatus
    step: int
    seed: int
    started: float
    """Unix time in seconds."""
    finished: float | None
    evaluation: Evaluation | None
    """The latest sampled one, or the latest of any mode; None before the first."""
    parent_id: str | None = None
    """The sweep that it belongs to, or the run that it continues; None for one that stands alone."""
    engine: str = ""
    idle_s: float = 0.0
    """Time that it lay dead before it was resumed."""
    tags: tuple[str, ...] = ()


def read_overviews(reader: Reader) -> list[Overview]:
    """Every run, newest first."""
    latest, tags = reader.latest_evaluations(), reader.tags()
    return [make_overview(run, latest.get(run.id), tags.get(run.id, ())) for run in reader.run_lines()]


def make_overview(run: RunLine, latest: Evaluation | None, tags: tuple[str, ...]) -> Overview:
    return Overview(
        run_id=run.id,
        name=run.name,
        status=run.status,
        step=run.last_step,
        seed=run.seed,
        started=run.started,
        finished=run.finished,
        evaluation=latest,
        parent_id=run.parent_id,
        engine=run.engine,
        idle_s=run.idle_s,
        tags=tags,
    )


NAMES = {
    "run_id": "the run's id",
    "spec": "the spec's name",
    "engine": "the engine's kind; `sweep` and `evaluation` for those",
    "status": "running, finished, failed or interrupted",
    "step": "last finished step",
    "seed": "seed",
    "success": "held-out success at the latest evaluation, 0 to 1",
    "started": "when it started, before now as a negative span: `started > -7d`",
    "time": "seconds it has taken",
    "tags": "its tags: `'best' in tags`",
    "parent": "the sweep or run it belongs to",
}
"""Names that a filter or an order may use."""


def chosen(overviews: Sequence[Overview], wanted: str | None, sort: str | None) -> list[Overview]:
    """Those that a filter wants, in the order of a name, highest first, or with `-` before it; newest first without.

    Raises:
        RlfError: the filter is none, or there is no such name.
    """
    upwards, sort = (sort or "").startswith("-"), (sort or "").removeprefix("-") or None
    if sort is not None and sort not in NAMES:
        raise RlfError(f"--sort: unknown name {sort!r}{nearest(sort, list(NAMES))} (known: {', '.join(NAMES)}).")
    test = (lambda _: True) if wanted is None else compile_filter(wanted, NAMES)
    every = [(item, {name: read(item) for name, read in FACTS.items()}) for item in overviews]
    kept = [(item, facts) for item, facts in every if test(facts)]
    if sort is not None:
        with_it, without = ([pair for pair in kept if (pair[1][sort] is None) is lacks] for lacks in (False, True))
        kept = sorted(with_it, key=lambda pair: pair[1][sort], reverse=not upwards) + without
    return [item for item, _ in kept]


FACTS: dict[str, Callable[[Overview], Any]] = {
    "run_id": lambda item: item.run_id,
    "spec": lambda item: item.name,
    "engine": lambda item: item.engine,
    "status": lambda item: str(item.status),
    "step": lambda item: item.step,
    "seed": lambda item: item.seed,
    "success": lambda item: item.evaluation and item.evaluation.metrics.get("success"),
    "started": lambda item: item.started - time.time(),
    "time": lambda item: elapsed_s(item.started, item.finished, item.status, item.idle_s),
    "tags": lambda item: item.tags,
    "parent": lambda item: item.parent_id,
}


def elapsed_s(started: float, finished: float | None, status: RunStatus, idle_s: float) -> float | None:
    """Seconds from start to end, or to now, less dead time and jumps of the clock; None when the end is not known."""
    if finished is None and status is not RunStatus.RUNNING:
        return None
    return max(0.0, (time.time() if finished is None else finished) - started - idle_s)
