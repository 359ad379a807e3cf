"""`python -m rlf.rewards.math_worker`: compares mathematical answers, a process that may be killed at any moment.

Reads one JSON line per question, {"golds": [text, ...], "answer": text, "cpu_s": number}, and writes {"unreadable":
text} where no gold is mathematics, else {"read": true} and then {"equal": bool}. The first line it writes is {"ready":
true}. An answer that needs more processor time than `cpu_s`, or too much memory, ends the process.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys
from typing import Any

_MAX_BYTES = 4 * 2**30


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
    """What a text says: LaTeX without delimiters as one formula, anything else by the last formula in it."""
    from math_verify import parse

    bare = "\\" in text and not any(mark in text for mark in ("$", r"\boxed", r"\(", r"\["))
    forms = (f"${text}$", text) if bare else (text, f"${text}$")
    return next((found for form in forms if (found := parse(form, parsing_timeout=None))), [])


def _write(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201 - stdout is the way out


if __name__ == "__main__":
    main()
