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

_MAX_BYTES = 4 * 2**30
_NAMES = "sin|cos|tan|log|ln|exp|pi"
_EXPRESSION = re.compile(
    rf"(?=.*[A-Za-z])(?=.*[-+*/^=(])(?:sqrt\b|(?:{_NAMES})\b|(?<![A-Za-z])[A-Za-z](?![A-Za-z])|[-\d\s+*/^=(){{}}.,!])+"
)
"""Digits, operators and names of one letter, without a word of prose."""


def main() -> None:
    """Answers until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    logging.disable(logging.CRITICAL)
    import math_verify  # noqa: F401 - loaded before the first question's time runs

    _write({"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        _answer(question["golds"], question["answer"], question["cpu_s"])


def _answer(golds: list[str], answer: str, cpu_s: float) -> None:
    from math_verify import verify

    right = [parsed for gold in golds if (parsed := _parsed(gold))]
    if not right:
        _write({"unreadable": " or ".join(golds)[:200]})
        return
    _write({"read": True})
    signal.setitimer(signal.ITIMER_PROF, cpu_s)  # at its end SIGPROF, which ends a process that does not handle it
    given = _parsed(answer)
    equal = any(verify(each, given, timeout_seconds=None) for each in right)
    signal.setitimer(signal.ITIMER_PROF, 0)
    _write({"equal": equal})


def _parsed(text: str) -> list[Any]:
    """What a text says: LaTeX without delimiters, or an expression in letters, as one formula, else the last formula.

    Of "x^2 - 1" the library by itself takes the last number, 1.
    """
    from math_verify import parse

    is_delimited = any(mark in text for mark in ("$", r"\boxed", r"\(", r"\["))
    whole = not is_delimited and ("\\" in text or _EXPRESSION.fullmatch(text) is not None)
    forms = (f"${_latex(text)}$", text) if whole else (text, f"${text}$")
    return next((found for form in forms if (found := parse(form, parsing_timeout=None))), [])


def _latex(expression: str) -> str:
    """The expression with the names of functions as LaTeX has them, where it has none."""
    if "\\" in expression:
        return expression
    expression = re.sub(r"sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", expression)
    return re.sub(rf"(?<![A-Za-z])({_NAMES})\b", r"\\\1 ", expression)


def _write(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201 - stdout is the way out


if __name__ == "__main__":
    main()
