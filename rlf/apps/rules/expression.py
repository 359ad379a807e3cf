"""`rule: expression`: arithmetic over facts of the trajectory and over other terms."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import CodeType, SimpleNamespace
from typing import ClassVar, Literal

from pydantic import field_validator

from rlf.core import nearest
from rlf.core.kinds import wrong_value
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import KnownSample, Range, Scoring, Verdict
from rlf.types import Outcome, Trajectory

_MAX_CHARS, _MAX_NODES = 500, 100

FACTS: dict[str, Callable[[Trajectory], float]] = {
    "calls": lambda trajectory: len(trajectory.calls),
    "successes": lambda trajectory: sum(record.result.outcome is Outcome.OK for record in trajectory.calls),
    "turns": lambda trajectory: len(trajectory.turns),
    "failures": lambda trajectory: len(trajectory.failures),
    "tokens": lambda trajectory: trajectory.num_sampled,
    "answered": lambda trajectory: bool((trajectory.answer or "").strip()),
    "answer_words": lambda trajectory: len((trajectory.answer or "").split()),
}
"""What an expression may name; each becomes a float."""
FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "sqrt": math.sqrt,
    "log": math.log,
    "exp": math.exp,
}
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub, ast.Not)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.And, ast.Or)
_SHAPES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Load)
_LEAVES = (ast.Name, ast.Attribute, ast.Constant)


class Expression(Rule):
    """The value of a formula such as `max(0, 1 - 0.1 * calls) if terms.correct >= 1 else 0`.

    Facts: calls, successes (calls that came to `ok`), turns, failures (of parsing), tokens (sampled), answered (0 or
    1), answer_words, and `terms.NAME` for another term's value before scale and clip. Operators + - * / // % **,
    comparisons, and, or, not, `a if b else c`; functions min, max, abs, sqrt, log, exp. All numbers are floats.
    Division by zero, or a term without a value, leaves the trajectory unscorable.
    """

    sample: ClassVar[KnownSample] = KnownSample(
        gold={"answer": "Ann"}, options={"formula": "answered * max(0, 1 - 0.1 * calls)"}
    )

    rule: Literal["expression"] = "expression"
    formula: str
    """At most 500 characters."""
    range: Range = (0.0, 1.0)
    """Least and greatest value; one outside is a fault of the term."""

    @field_validator("formula")
    @classmethod
    def _formula_is_safe(cls, formula: str) -> str:
        try:
            _parse_formula(formula)
        except ValueError as error:
            raise wrong_value(str(error)) from error
        return formula

    @property
    def bounds(self) -> tuple[float, float]:
        return self.range

    @property
    def reads(self) -> Mapping[str, str]:
        """The gate's term and those that the formula names."""
        return {**super().reads, **dict.fromkeys(sorted(self.named_terms), "formula")}

    @cached_property
    def named_terms(self) -> frozenset[str]:
        """Names after `terms.`."""
        return frozenset(
            node.attr for node in ast.walk(_parse_formula(self.formula)) if isinstance(node, ast.Attribute)
        )

    @cached_property
    def _compiled_formula(self) -> tuple[CodeType, tuple[str, ...]]:
        """The formula, and the facts that it names."""
        tree = _parse_formula(self.formula)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        return compile(tree, "formula", "eval"), tuple(sorted(names & FACTS.keys()))

    def judge(self, trajectory: Trajectory) -> Verdict:
        """Of a formula that names no terms."""
        return self._compute_value(trajectory, {})

    def verdict(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        return self._compute_value(trajectory, scoring.values)

    def _compute_value(self, trajectory: Trajectory, values: Mapping[str, float | None]) -> Verdict:
        missing = next((name for name in sorted(self.named_terms) if values.get(name) is None), None)
        if missing is not None:
            return Verdict(None, f"terms.{missing} has no value")
        code, names = self._compiled_formula
        facts = {name: float(FACTS[name](trajectory)) for name in names}
        try:
            value = eval(code, {"__builtins__": {}, **FUNCTIONS, **facts, "terms": SimpleNamespace(**values)})
        except ZeroDivisionError:
            return Verdict(None, "division by zero")
        return Verdict(float(value), ", ".join(f"{name} = {fact:g}" for name, fact in facts.items()))


def _parse_formula(formula: str) -> ast.Expression:
    """The tree of a formula, its numbers made floats. Raises ValueError for what is not allowed in one."""
    if len(formula) > _MAX_CHARS:
        raise ValueError(f"got {len(formula)} characters; expected at most {_MAX_CHARS}. Write a `kind: python` term.")
    try:
        tree = ast.parse(formula.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"got {formula!r}; it is not a formula: {error}. Fix the formula.") from error
    nodes = list(ast.walk(tree))
    if len(nodes) > _MAX_NODES:
        raise ValueError(f"got a formula of {len(nodes)} parts; expected at most {_MAX_NODES}. Simplify it.")
    complaint = next(_list_complaints(nodes), None)
    if complaint is not None:
        raise ValueError(complaint)
    whole: ast.Expression = _Floats().visit(tree)
    return ast.fix_missing_locations(whole)


def _list_complaints(nodes: list[ast.AST]) -> Iterator[str]:
    functions = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        match node:
            case ast.Name(id=name) if id(node) in functions:
                if name not in FUNCTIONS:
                    known = sorted(FUNCTIONS)
                    yield f"unknown function {name!r}{nearest(name, known)} (known: {', '.join(known)}). Use one."
            case ast.Name(id=name) if id(node) in owners:
                if name != "terms":
                    yield f"got {ast.unparse(node)!r} before a dot; only `terms.NAME` has one. Fix the formula."
            case ast.Name(id=name):
                if name not in FACTS:
                    known = [*FACTS, "terms.NAME"]
                    yield f"unknown name {name!r}{nearest(name, known)} (known: {', '.join(known)}). Use one of these."
            case ast.Attribute(value=value) if not isinstance(value, ast.Name):
                yield f"got {ast.unparse(node)!r}; only `terms.NAME` has a dot. Fix the formula."
            case ast.Call(func=func, keywords=keywords) if keywords or not isinstance(func, ast.Name):
                yield f"got {ast.unparse(node)!r}; functions are called as `min(1, calls)`. Fix the formula."
            case ast.Constant(value=value) if not isinstance(value, int | float) or abs(value) > 1e12:
                yield f"got {str(value)[:40]!r}; expected a number of at most 1e12. Fix the formula."
            case _ if not isinstance(node, _OPERATORS + _COMPARISONS + _SHAPES + _LEAVES):
                yield f"{type(node).__name__} is not allowed here. Use arithmetic, comparisons, and, or, not, if."


class _Floats(ast.NodeTransformer):
    """Makes numbers floats, so that a power cannot grow into an endless integer."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        assert isinstance(node.value, int | float), f"a constant that is no number: {node.value!r}"
        return ast.Constant(float(node.value))
