"""`python -m rlf.rewards.math_worker`: compares mathematical answers, a process that may be killed at any moment.

Reads one JSON line per question, {"golds": [text, ...], "answer": text, "cpu_s": number}, and writes {"unreadable":
text} where no gold is mathematics, else {"read": true} and then {"equal": bool}. The first line it writes is {"ready":
true}. An answer that needs more processor time than `cpu_s`, or too much memory, ends the process.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import signal
import sys
from typing import Any

from rlf.core.redact import fold
from rlf.rewards.normalization import SUPERSCRIPTS

_MAX_BYTES = 4 * 2**30
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
_ROOT = re.compile(r"\u221a\s?(\d+(?:\.\d+)?|[A-Za-z])")
# Superscript digits are separate characters; math-verify reads only `^`.
_RAISED = re.compile("(?<=[\\w)])[\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")


def main() -> None:
    """Answers until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    logging.disable(logging.CRITICAL)
    from math_verify import verify

    for one, other in _FIRST:
        verify(_parse_text(one), _parse_text(other), timeout_seconds=None)
    _write_line({"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        _compare_answer(question["golds"], question["answer"], question["cpu_s"])


def _compare_answer(golds: list[str], answer: str, cpu_s: float) -> None:
    from math_verify import verify

    right = [parsed for gold in golds if (parsed := _parse_text(gold))]
    if not right:
        _write_line({"unreadable": " or ".join(golds)[:200]})
        return
    _write_line({"read": True})
    signal.setitimer(signal.ITIMER_PROF, cpu_s)  # at its end SIGPROF, which ends a process that does not handle it
    given = _parse_text(answer)
    equal = any(verify(each, given, timeout_seconds=None) for each in right)
    signal.setitimer(signal.ITIMER_PROF, 0)
    _write_line({"equal": equal})


def _parse_text(text: str) -> list[Any]:
    """A text as mathematics: LaTeX without delimiters, or the formula in letters at its end, else the last formula.

    Of "x^2 - 1" and "(1, 2)" the library by itself takes the last number, 1 and 2.
    """
    from math_verify import parse

    text = _in_ascii(text)
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


def _in_ascii(text: str) -> str:
    """The text with signs, digits, powers and roots as they are typed."""
    text = _RAISED.sub(lambda power: f"^{{{power[0].translate(SUPERSCRIPTS)}}}", text)
    return _ROOT.sub(r"sqrt(\1)", fold(text))


def _to_latex(expression: str) -> str:
    """The expression with the names of functions as LaTeX has them, where it has none."""
    if "\\" in expression:
        return expression
    if expression[:1] == "{":
        return expression.replace("{", r"\{").replace("}", r"\}")
    expression = re.sub(r"sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", expression)
    return re.sub(rf"(?<![A-Za-z])({_NAMES})\b", r"\\\1 ", expression)


def _write_line(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201 - stdout is the way out


if __name__ == "__main__":
    main()
