"""What a reward says of itself: the words, numbers and patterns in its keys and its code, and the lines that run.

Code is read where it is compiled: constants of the function, of what it closes over, and of everything of its user's
that it names. What is only known as it runs (a pattern that is put together, a branch that is taken) is seen by a trace
of the threads that own functions run on.
"""

from __future__ import annotations

import ast
import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from rlf.apps.attack.patterns import is_pattern
from rlf.chat.examples import example_call
from rlf.core.callables import library_folders, load_callable
from rlf.core.errors import RlfError
from rlf.rewards.rules.json_schema import JsonSchema
from rlf.rewards.term import Term
from rlf.types import ToolDescription

_MAX_CONSTANTS = 300
_MAX_WORD_CHARS = 120
_MAX_PATTERN_CHARS = 600
_OF_TERMS = {"kind", "name", "rule", "callable", "shape", "stage", "unscorable", "when", "tests", "weight", "scale"} | {
    *("clip", "range", "required", "timeout_s")
}
"""Keys that say nothing of what the value of a term goes by."""
_RLF = str(Path(__file__).parents[2])


@dataclass(slots=True)
class Reading:
    """Constants by the place that they stand in, the first first."""

    words: dict[str, str] = field(default_factory=dict)
    numbers: dict[float, str] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)

    def add(self, value: Any, place: str) -> None:
        """Takes a constant, or those in it."""
        if len(self.words) + len(self.numbers) + len(self.patterns) >= _MAX_CONSTANTS:
            return
        if isinstance(value, re.Pattern):
            self.add(value.pattern, place)
        elif isinstance(value, str) and value.strip():
            if len(value) <= _MAX_PATTERN_CHARS and is_pattern(value):
                self.patterns.setdefault(value, place)
            if len(value) <= _MAX_WORD_CHARS:
                self.words.setdefault(value, place)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self.numbers.setdefault(value, place)
        elif isinstance(value, Mapping):
            for key, each in value.items():
                self.add(key, place)
                self.add(each, place)
        elif isinstance(value, set | frozenset):
            for each in sorted(value, key=repr):  # a set of texts has another order in each process
                self.add(each, place)
        elif isinstance(value, list | tuple):
            for each in value:
                self.add(each, place)

    @property
    def names(self) -> list[str]:
        """Words that may name a key, a tag or a label."""
        return [word for word in self.words if re.fullmatch(r"[A-Za-z][\w-]{0,30}", word)]


def read_terms(terms: Iterator[Term] | tuple[Term, ...]) -> Reading:
    """All that the terms say."""
    reading = Reading()
    for term in terms:
        if name := getattr(term, "callable", None):
            _read_function(load_callable(name), reading)
        if isinstance(term, JsonSchema):
            with suppress(RlfError):
                instance = example_call(ToolDescription("schema", "", dict(term.json_schema)), 1).arguments
                reading.words[json.dumps(dict(instance))] = f"schema of {term.name}"
        for key, value in term.model_dump(exclude_defaults=True, exclude=_OF_TERMS).items():
            place = f"{key} of {term.name}"
            reading.add(value, place)
            if key == "formula":
                _read_formula(value, place, reading)
    return reading


def _read_formula(formula: str, place: str, reading: Reading) -> None:
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse(formula, mode="eval")):
            if isinstance(node, ast.Constant):
                reading.add(node.value, place)


def _read_function(function: Any, reading: Reading) -> None:
    """Everything of the user's that a function reaches: breadth first, so that what is nearest counts first."""
    home, waiting, seen = _home_of(function), [function], set[int]()
    while waiting:
        found = waiting.pop(0)
        if id(found) in seen or len(seen) > _MAX_CONSTANTS:
            continue
        seen.add(id(found))
        waiting += _list_reached(found, home, reading)


def _list_reached(found: Any, home: str, reading: Reading) -> list[Any]:
    if isinstance(found, partial):
        reading.add([*found.args, found.keywords], "its arguments")
        return [found.func]
    if isinstance(found, type):
        return [each for each in vars(found).values() if callable(each) or isinstance(each, str | list | tuple)]
    function = getattr(found, "__wrapped__", getattr(found, "__func__", found))
    code = getattr(function, "__code__", None)
    if code is None:
        reading.add(found, "a constant")
        call = vars(type(found)).get("__call__")
        return [call, *vars(found).values()] if call is not None and hasattr(found, "__dict__") else []
    if not _is_own(code.co_filename, home):
        return []
    place, reached = f"{Path(code.co_filename).name}:{code.co_firstlineno}", list[Any]()
    doc, names = getattr(function, "__doc__", None), set[str]()
    for part in _with_inner(code):
        names.update(part.co_names)
        for constant in part.co_consts:
            if constant != doc:
                reading.add(constant, place)
    reading.add([getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)], place)
    closed = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_filled(cell)]
    for name, value in [("", each) for each in closed] + [
        (name, function.__globals__[name]) for name in _in_order(code, names) if name in function.__globals__
    ]:
        if isinstance(value, ModuleType):
            if _is_own(getattr(value, "__file__", None) or "", home):
                reached += [getattr(value, each) for each in sorted(names) if hasattr(value, each)]
        elif callable(value):
            reached.append(value)
        else:
            reading.add(value, f"{name or 'closure'} of {place}")
    return reached


def _in_order(code: CodeType, names: set[str]) -> list[str]:
    """Names in the order of the code, those of inner functions after."""
    return list(dict.fromkeys([*code.co_names, *sorted(names)]))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # not yet bound
        return False


def _home_of(function: Any) -> str:
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return str(Path(code.co_filename).parent) if code is not None else ""


def _is_own(file: str, home: str) -> bool:
    """Whether a file is the user's: beside the function, or in no library and not rlf's."""
    if home and file.startswith(home):
        return True
    return bool(file) and not file.startswith(("<", _RLF, *library_folders()))


Arc = tuple[str, int, int]
"""A file, and two of its lines that ran one after the other."""


class Watch:
    """Lines of own functions that run, and the patterns that they use; those that go by a gold are not kept."""

    def __init__(self, terms: tuple[Term, ...]) -> None:
        self.arcs: set[Arc] = set()
        """Of the trajectories since it was emptied."""
        self.gold = ""
        """The right answer of the question that is being scored."""
        self._golds_by_pattern: defaultdict[str, set[str]] = defaultdict(set)
        names = [name for term in terms if (name := getattr(term, "callable", None))]
        self._homes = {_home_of(load_callable(name)) for name in names} - {""}
        self._compile = getattr(getattr(re, "_compile", None), "__code__", None)

    @property
    def patterns(self) -> list[str]:
        """Those that were used with different golds, so that none of them holds one."""
        return sorted(pattern for pattern, golds in self._golds_by_pattern.items() if len(golds) > 1)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Sees the threads that are started within the block."""
        if not self._homes:
            yield
            return
        before = threading.gettrace()
        threading.settrace(self._trace_call)
        try:
            yield
        finally:
            threading.settrace(before)  # type: ignore[arg-type]  # None is what it was

    def _trace_call(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code is self._compile:
            pattern = frame.f_locals.get("pattern")
            if isinstance(pattern, str) and len(pattern) <= _MAX_PATTERN_CHARS:
                self._golds_by_pattern[pattern].add(self.gold)
            return None
        if not any(_is_own(code.co_filename, home) for home in self._homes):
            return None
        last, file = code.co_firstlineno, code.co_filename

        def trace_line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "line":
                self.arcs.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return trace_line

        return trace_line
