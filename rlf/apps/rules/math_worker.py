"""`python -m rlf.apps.rules.math_worker`: compares mathematical answers, a process that may be killed at any moment.

Answers frames (`rlf.sandbox.guest.wire`) over a socket of its own: {"golds": [text, ...]} with {"is_readable": bool},
whether any is mathematics; {"answer": text, "cpu_s": number} with {"is_equal": bool}, whether it is one of them; and {}
with {}. An answer that needs more processor time than `cpu_s`, or too much memory, ends the process.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import sys
from math import floor, log10
from typing import Any, NamedTuple

from rlf.apps.rules.math_text import as_latex, gold_latex, has_no_number, in_ascii, in_radians, same_math
from rlf.processes.forking import die_with
from rlf.rewards.answers import last_boxed, result_of
from rlf.sandbox.guest.wire import Bounds, pack, read_frame, write_all

_MAX_BYTES = 4 * 2**30
_QUESTION = Bounds(1 << 30)
_FIRST = (
    ("x^2 - 1", "$(x-1)(x+1)$"),
    ("(0, 1]", "$x \\ge 2$"),
    (r"\sin(x)", r"$\int_0^1 x dx$"),
    ("x = 3", r"$\{1, 2\}$"),
)
"""Compared before the first question: sympy loads and caches what each sort of expression needs with the first of its
sort, up to .4 s of processor time that would be taken from an answer's own."""
_NAMES = "sin|cos|tan|log|ln|exp|pi"
_TOKEN = rf"(?:(?<![A-Za-z])(?:sqrt|{_NAMES}|[A-Za-z])(?![A-Za-z])|\d+(?:\.\d+)*|\.\d+|[-+*/^=()\[\]{{}},!])"
_FORMULA = re.compile(rf"{_TOKEN}(?:[ \t]{{0,3}}{_TOKEN})*")
"""Digits, operators, brackets and names of one letter, without a word of prose."""
_ARTICLE = re.compile(r"(?:[aA]|I)\s+(?![-+*/^=,)])")
_IS_FORMULA = re.compile(r"(?=.*[A-Za-z]).*[\w)\]}]\s*(?:[-+*/^=(]).*[\w)\]}!]|[(\[{][^()\[\]{}]*,[^()\[\]{}]*[)\]}]")
"""An operator between two operands, one of them a name, or a point, interval or set."""
_QUANTITY = re.compile(r"[-+]?[\d.]+\s+[A-Za-z]\s?/\s?[A-Za-z](?:\^?\d)?|\(\d{1,3}(?:,\d{3})+\)")
"""A number with a unit, or with commas between groups of digits: 5 m/s, (1,000)."""


def main() -> None:
    """Answers over the socket whose descriptor is the first argument until it is closed."""
    die_with(int(sys.argv[2]))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    logging.disable(logging.CRITICAL)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - the library's words are of no use
    for one, other in _FIRST:
        _is_equal(_Formula(_parse_latex(one), one), _Formula(_parse_text(other)))
    channel, right = int(sys.argv[1]), list[_Formula | str]()
    while (frame := read_frame(lambda size: os.read(channel, size), _QUESTION)) is not None:
        asked, answer = frame.read(), dict[str, bool]()
        if "golds" in asked:
            right = _read_golds(asked["golds"])
            answer["is_readable"] = bool(right)
        elif "answer" in asked:
            signal.setitimer(signal.ITIMER_PROF, asked["cpu_s"])  # at its end SIGPROF, which ends a process by default
            answer["is_equal"] = _is_any(right, asked["answer"])
            signal.setitimer(signal.ITIMER_PROF, 0)
        write_all(channel, pack(frame.number, answer))


def _read_golds(golds: list[str]) -> list[_Formula | str]:
    right = list[_Formula | str]()
    for gold in golds:  # what is mathematics and nobody reads is none
        latex = gold_latex(gold)
        right += [gold] if latex is None else _read_latex(latex, gold)
    return right


class _Formula(NamedTuple):
    """What the library reads, and the LaTeX that it read; empty where it is a part of a text."""

    parsed: list[Any]
    latex: str = ""


def _read_latex(latex: str, text: str) -> list[_Formula]:
    """The formula that a text is; of degrees also in radians."""
    forms = dict.fromkeys((latex, in_radians(latex, text)))
    return [_Formula(parsed, form) for form in forms if (parsed := _parse_latex(form))]


def _is_any(right: list[_Formula | str], answer: str) -> bool:
    """Whether an answer is one of the golds."""
    if any(isinstance(gold, str) and same_math(answer, gold) for gold in right):
        return True
    formulas = [gold for gold in right if not isinstance(gold, str)]
    given = _parse_answer(answer) if formulas else []
    return any(_is_equal(gold, each) for gold in formulas for each in given)


def _is_equal(gold: _Formula, given: _Formula) -> bool:
    """Equal as the library has it, but for small numbers and for sets.

    By itself it takes all below 5e-7 for 0, and a set for a point.
    """
    from math_verify import verify

    if {gold.latex[:1], given.latex[:1]} in ({"\\", "("}, {"\\", "["}) and _is_set(gold) != _is_set(given):
        return False
    number, digits = gold.parsed[0], 6
    if getattr(number, "is_Number", False) and 0 < abs(number) < 1:
        digits = max(digits, 3 - floor(log10(abs(number))))
    equal: bool = verify(
        gold.parsed, given.parsed, float_rounding=digits, allow_set_relation_comp=True, timeout_seconds=None
    )
    return equal


def _is_set(formula: _Formula) -> bool:
    return formula.latex.startswith(r"\{")


def _parse_answer(answer: str) -> list[_Formula]:
    """An answer that is mathematics in whole, or whose result is; else the last formula in it."""
    for text in (answer, result_of(answer)):
        latex = as_latex(text)
        if latex is not None and (found := _read_latex(latex, text)):
            return found
    result, boxed = result_of(answer), last_boxed(answer)
    if has_no_number(result):
        return []
    # After "the answer is" the library takes the first number, which in "not 42 but 43" is the wrong one.
    return [_Formula(_parse_text(result if boxed is None else f"\\boxed{{{boxed}}}") or _parse_text(answer))]


def _parse_latex(latex: str) -> list[Any]:
    """LaTeX that is one formula, all of it."""
    from math_verify import LatexExtractionConfig, parse
    from math_verify.parser import NormalizationConfig

    as_it_is = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last")
    reading = [LatexExtractionConfig(normalization_config=as_it_is)]
    text = f"\\boxed{{{latex}}}"
    found: list[Any] = parse(text, reading, fallback_mode="no_fallback", parsing_timeout=None)
    return found


def _parse_text(text: str) -> list[Any]:
    """A text as mathematics: LaTeX without delimiters, or the formula in letters at its end, else the last formula.

    Of "x^2 - 1" and "(1, 2)" the library by itself takes the last number, 1 and 2.
    """
    from math_verify import parse

    text = in_ascii(text)
    if any(mark in text for mark in ("$", r"\boxed", r"\(", r"\[")):
        forms = [text, f"${text}$"]
    elif "\\" in text:
        forms = [f"${text}$", text]
    else:
        formula = last_formula(text)
        forms = [text, f"${text}$"] if formula is None else [f"${_to_latex(formula)}$", text]
    return next((found for form in forms if (found := parse(form, parsing_timeout=None))), [])


def last_formula(text: str) -> str | None:
    """The formula after which a text has no number and no other formula; None where it ends with neither.

    >>> last_formula("We have f(x) = x^2 + 1, so the answer is x^2 - 1.")
    'x^2 - 1'
    """
    formulas = [_formula_in(run[0]) for run in _FORMULA.finditer(text)]
    last = next((each for each in reversed(formulas) if _is_formula(each) or re.search(r"\d", each)), "")
    return last if _is_formula(last) else None


def _is_formula(run: str) -> bool:
    return _IS_FORMULA.fullmatch(run) is not None and _QUANTITY.fullmatch(run) is None


def _formula_in(run: str) -> str:
    """The formula in a run of symbols: without an article before it, and after the last comma outside brackets."""
    depth, start = 0, 0
    for at, character in enumerate(run):
        depth += (character in "([{") - (character in ")]}")
        start = at + 1 if character == "," and depth <= 0 and run[at + 1 :].strip() else start
    return _ARTICLE.sub("", run[start:].strip(" ,!"), count=1)


def _to_latex(expression: str) -> str:
    """The expression with the names of functions as LaTeX has them, where it has none."""
    if "\\" in expression:
        return expression
    if expression[:1] == "{":
        return expression.replace("{", r"\{").replace("}", r"\}")
    expression = re.sub(r"sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", expression)
    return re.sub(rf"(?<![A-Za-z])({_NAMES})\b", r"\\\1 ", expression)


if __name__ == "__main__":
    main()
