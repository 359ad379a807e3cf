"""What a reward says of itself: the words, numbers and patterns in its keys and its code, and the lines that run.

Code is read where it is compiled: constants of the function, of what it closes over, and of everything of its user's
that it names. What is only known as it runs (a pattern that is put together, a branch that is taken) is seen by a trace
of the threads that own functions run on. Texts that a pattern matches are made from its tree, which Python's own parser
of patterns makes (`re._parser`; checked against Python 3.11 to 3.13).
"""

from __future__ import annotations

import ast
import json
import re
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from inspect import getclosurevars, unwrap
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]  # what `_parser` builds its tree of
from re import _parser as parser  # type: ignore[attr-defined]  # the parser of `re.compile`
from types import CodeType, FrameType, ModuleType
from typing import Any

from rlf.chat.examples import example_call
from rlf.core.callables import load_callable
from rlf.core.errors import RlfError
from rlf.core.process import library_folders
from rlf.rewards.normalization import golds
from rlf.rewards.term import Term
from rlf.types import ToolDescription

_MAX_CONSTANTS = 300
_MAX_WORD_CHARS = 120
_MAX_PATTERN_CHARS = 600
_OF_TERMS = {"kind", "name", "rule", "callable", "shape", "stage", "unscorable", "when", "tests", "weight", "scale"} | {
    *("clip", "range", "required", "timeout_s")
}
"""Keys that say nothing of what the value of a term goes by."""
_EVALUATORS = frozenset({"eval", "exec", "locals", "vars"})
_RLF = str(Path(__file__).parents[2])


@dataclass(slots=True)
class RewardReading:
    """Constants by the place that they stand in, the first first."""

    words: dict[str, str] = field(default_factory=dict)
    numbers: dict[float, str] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)
    forms: list[str] = field(default_factory=list)
    """Answers of the terms' own tests, with `HOLE` in place of the gold."""

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


def read_terms(terms: Iterator[Term] | tuple[Term, ...]) -> RewardReading:
    """All that the terms say."""
    reading = RewardReading()
    for term in terms:
        if name := getattr(term, "callable", None):
            _read_function(load_callable(name), reading)
        if schema := getattr(term, "json_schema", None):
            with suppress(RlfError):
                instance = example_call(ToolDescription("schema", "", dict(schema)), 1).arguments
                reading.words[json.dumps(dict(instance))] = f"schema of {term.name}"
        for key, value in term.model_dump(exclude_defaults=True, exclude=_OF_TERMS).items():
            place = f"{key} of {term.name}"
            reading.add(value, place)
            if key == "formula":
                _read_formula(value, place, reading)
        for test in term.tests:
            if test.expect and (gold := next((each for each in golds(test.gold) if each in (test.answer or "")), "")):
                reading.forms.append((test.answer or "").replace(gold, HOLE, 1))
    return reading


def _read_formula(formula: str, place: str, reading: RewardReading) -> None:
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse(formula, mode="eval")):
            if isinstance(node, ast.Constant):
                reading.add(node.value, place)


def _read_function(function: Any, reading: RewardReading) -> None:
    """Everything of the user's that a function reaches: breadth first, so that what is nearest counts first."""
    home, waiting, seen = _home_of(function), [function], set[int]()
    while waiting:
        found = waiting.pop(0)
        if id(found) in seen or len(seen) > _MAX_CONSTANTS:
            continue
        seen.add(id(found))
        waiting += _list_reached(found, home, reading)


def _list_reached(found: Any, home: str, reading: RewardReading) -> list[Any]:
    if isinstance(found, partial):
        reading.add([*found.args, found.keywords], "its arguments")
        return [found.func]
    if isinstance(found, type):
        return [each for each in vars(found).values() if callable(each) or isinstance(each, str | list | tuple)]
    function = getattr(found, "__func__", found)
    code = getattr(function, "__code__", None)
    if code is None:
        reading.add(found, "a constant")
        call = vars(type(found)).get("__call__")
        return [call, *vars(found).values()] if call is not None and hasattr(found, "__dict__") else []
    if not _is_own(code.co_filename, home):
        return []
    place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    reached = [function.__wrapped__] if hasattr(function, "__wrapped__") else list[Any]()
    doc, names = getattr(function, "__doc__", None), set[str]()
    for part in _with_inner(code):
        names.update(part.co_names)
        if not _EVALUATORS.isdisjoint(part.co_names):  # what it evaluates may name what it holds
            reading.add(part.co_varnames, f"names of {place}")
        for constant in part.co_consts:
            if constant != doc:
                reading.add(constant, place)
    reading.add([getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)], place)
    reachable = {**function.__globals__, **getclosurevars(function).nonlocals}
    for name in dict.fromkeys([*code.co_freevars, *code.co_names, *sorted(names)]):
        value = reachable.get(name)
        if isinstance(value, ModuleType):
            if _is_own(getattr(value, "__file__", None) or "", home):
                reached += [getattr(value, each) for each in sorted(names) if hasattr(value, each)]
        elif callable(value):
            reached.append(value)
        else:
            reading.add(value, f"{name} of {place}")
    return reached


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _home_of(function: Any) -> str:
    """The folder of a function, or of what a wrapper, a partial or an object calls; empty of one in C."""
    function = unwrap(getattr(function, "func", function))
    code = getattr(function, "__code__", None) or getattr(vars(type(function)).get("__call__"), "__code__", None)
    return str(Path(code.co_filename).parent) if code is not None else ""


def _is_own(file: str, home: str) -> bool:
    """Whether a file is the user's: beside the function, or in no library and not rlf's."""
    if home and file.startswith(home):
        return True
    return bool(file) and not file.startswith(("<", _RLF, *library_folders()))


Arc = tuple[str, int, int]
"""A file, and two of its lines that ran one after the other."""


class LineWatch:
    """Lines of own functions that run, and the patterns that they use; those that go by a gold are not kept."""

    def __init__(self, terms: tuple[Term, ...]) -> None:
        self.arcs: set[Arc] = set()
        """Of the trajectories since it was emptied."""
        self.gold = ""
        """The right answer of the question that is being scored."""
        self._golds_by_pattern: defaultdict[str, set[str]] = defaultdict(set)
        names = [name for term in terms if (name := getattr(term, "callable", None))]
        self._homes = {_home_of(load_callable(name)) for name in names} - {""}
        self._own: dict[str, bool] = {}
        """By file, whether its lines are kept: asked at each call of a function that a reward makes."""
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
            threading.settrace(before)

    def _trace_call(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code is self._compile:
            pattern = frame.f_locals.get("pattern")
            if isinstance(pattern, str) and len(pattern) <= _MAX_PATTERN_CHARS:
                self._golds_by_pattern[pattern].add(self.gold)
            return None
        last, file = code.co_firstlineno, code.co_filename
        if file not in self._own:
            self._own[file] = any(_is_own(file, home) for home in self._homes)
        if not self._own[file]:
            return None

        def trace_line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "line":
                self.arcs.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return trace_line

        return trace_line


# Texts that a regular expression matches.

HOLE = "\0"
"""Place in a text where an answer goes; it occurs in no text that a policy writes."""
_MAX_MADE_CHARS = 2000
_MANY = 12
"""Repetitions of what may be repeated without end, where a long text is wanted."""
_FILLERS = ("word", "9", " ", "A", "x", "0", "1", "_", "\n", "é")
"""Tried for a character that may be nearly any; the first is written letter by letter."""
_OF_CATEGORY = {
    op.CATEGORY_DIGIT: "9",
    op.CATEGORY_SPACE: " ",
    op.CATEGORY_WORD: "w",
    op.CATEGORY_NOT_DIGIT: "x",
    op.CATEGORY_NOT_SPACE: "x",
    op.CATEGORY_NOT_WORD: " ",
}
_DIGITS = ("9", "1", "0", "5", "2")


def is_pattern(text: str) -> bool:
    """Whether a text is a regular expression that says more than its own letters."""
    if len(text) < 2 or not re.search(r"[\\\[(.*+?^$|{]", text):
        return False
    tree = _parse(text)
    return tree is not None and any(code is not op.LITERAL for code, _ in tree)


def matching(pattern: str, variant: int = 0) -> str | None:
    """A text that the pattern matches; None where none is found.

    Args:
        variant: 0 for as little as matches, others for more of what may be repeated, and for other choices.
    """
    tree = _parse(pattern)
    text = None if tree is None else _Writer(variant, None).write(tree)
    return text if text is not None and _is_matched(pattern, text) else None


def templates_of(pattern: str, variant: int = 1) -> Iterator[str]:
    """Texts that the pattern matches with `HOLE` in place of each group, and of each part that may hold anything."""
    tree = _parse(pattern)
    for hole in range(16 if tree is not None else 0):
        writer = _Writer(variant, hole)
        text = writer.write(tree or ())
        if HOLE not in text:
            return
        fillings = (writer.held, "9", "A", "yes", "B", "word", "")
        if any(_is_matched(pattern, text.replace(HOLE, each)) for each in fillings):
            yield text


def _is_matched(pattern: str, text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return len(text) <= _MAX_MADE_CHARS and re.search(pattern, text) is not None


def _parse(pattern: str) -> Sequence[Any] | None:
    """The tree of a pattern; None for what is none. Its author's warnings are not the attack's."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parser.parse(pattern)  # type: ignore[no-any-return]  # a list of pairs
    except (re.error, RecursionError, OverflowError):
        return None


class _Writer:
    """One walk over the tree of a pattern.

    Args:
        hole: number of the place that is left open, of those where an answer may stand; None: none is.
    """

    def __init__(self, variant: int, hole: int | None) -> None:
        self._variant = variant
        self._hole = hole
        self._num_places = 0
        self._num_written = 0
        self._groups: dict[int, str] = {}
        self.held = ""
        """What the pattern itself would have in the place that is left open."""

    def write(self, tree: Sequence[Any]) -> str:
        return "".join(self._write_node(code, value) for code, value in tree)

    def _write_node(self, code: Any, value: Any) -> str:
        if code is op.LITERAL:
            return chr(value)
        if code in (op.NOT_LITERAL, op.ANY, op.IN):
            return self._write_character(code, value)
        if code is op.BRANCH:
            branches = value[1]
            return self.write(branches[self._variant % len(branches)])
        if code is op.SUBPATTERN:
            group, tree = value[0], value[3]
            is_hole = group is not None and self._is_hole()
            text = self.write(tree)
            if is_hole:
                self.held, text = text, HOLE
            self._groups[group] = text
            return text
        if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._write_repeated(*value)
        if code is op.ATOMIC_GROUP:
            return self.write(value)
        if code is op.GROUPREF:
            return self._groups.get(value, "")
        if code is op.GROUPREF_EXISTS:
            return self.write(value[1])
        if code is op.ASSERT and value[0] > 0:
            return self.write(value[1])
        return ""  # an anchor, or what must not follow

    def _is_hole(self) -> bool:
        self._num_places += 1
        return self._num_places - 1 == self._hole

    def _write_repeated(self, least: int, most: int, tree: Sequence[Any]) -> str:
        is_free = len(tree) == 1 and tree[0][0] in (op.ANY, op.NOT_LITERAL, op.IN) and most > 1
        is_hole = is_free and tree[0] != (op.IN, [(op.CATEGORY, op.CATEGORY_SPACE)]) and self._is_hole()
        wanted = (least, max(least, 1), least + _MANY, max(least, 4))[self._variant % 4]
        text = "".join(self.write(tree) for _ in range(min(wanted, most, _MAX_MADE_CHARS)))
        if is_hole:
            self.held, text = text, HOLE
        return text

    def _write_character(self, code: Any, value: Any) -> str:
        """A character of a class: letters of words in turn where it may be any, digits by the variant."""
        self._num_written += 1
        word = _FILLERS[0]
        fillers = (word[self._num_written % len(word)], *_FILLERS[1:])
        if code is op.ANY:
            return fillers[0]
        if code is op.NOT_LITERAL:
            return next(each for each in fillers if ord(each) != value)
        if value[0][0] is op.NEGATE:
            return next((each for each in fillers if not _is_in(value[1:], each)), "")
        chosen, argument = value[(self._variant + self._num_written) % len(value)] if self._variant > 3 else value[0]
        if chosen is op.LITERAL:
            return chr(argument)
        if chosen is op.RANGE:
            low, high = argument
            return chr(low + (self._variant + self._num_written) % (high - low + 1))
        if argument is op.CATEGORY_DIGIT:
            return _DIGITS[self._variant % len(_DIGITS)]
        return _OF_CATEGORY.get(argument, "x")


def _is_in(members: Sequence[Any], character: str) -> bool:
    for code, value in members:
        if code is op.LITERAL and ord(character) == value:
            return True
        if code is op.RANGE and value[0] <= ord(character) <= value[1]:
            return True
        if code is op.CATEGORY:
            kind = {
                op.CATEGORY_DIGIT: character.isdigit(),
                op.CATEGORY_SPACE: character.isspace(),
                op.CATEGORY_WORD: character.isalnum() or character == "_",
            }
            if kind.get(value, False):
                return True
    return False


def all_texts() -> list[str]:
    """Texts that rewards are fooled by, whatever is asked: those of `texts.json`, and those that packages add.

    An entry point of the group `rlf.apps.attack.texts` names a list of texts.
    """
    own: list[str] = json.loads(Path(__file__).with_name("texts.json").read_text(encoding="utf-8"))
    points = sorted(entry_points(group="rlf.apps.attack.texts"), key=lambda point: point.name)
    added = [text for point in points for text in point.load()]
    return list(dict.fromkeys([*own, "9" * 5000, "\u200b" * 200, *added]))
