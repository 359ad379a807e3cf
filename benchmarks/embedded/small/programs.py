"""Questions that a line of Python answers, worded as those of `builtin:programs`.

Left out on purpose are the digits of a power: reinforcement learning is to find them from the digits of a number and
from powers.
"""

from __future__ import annotations

import random

from benchmarks.embedded.small.task import Task

PYTHON_DOCUMENT = "Run a Python program; you read what it prints and the value of its last expression."
_STEPS = "n = {a}\ni = 0\nwhile n > 1:\n    n = n // 2 if n % 2 == 0 else 3 * n + 1\n    i = i + 1\ni"
_PROGRAMS: dict[str, tuple[str, str]] = {
    "product": ("What is {a} * {b}?", "{a} * {b}"),
    "power": ("What is {m} ** {n}?", "{m} ** {n}"),
    "digits_number": ("What is the sum of the digits of {a}?", "sum(map(int, str({a})))"),
    "digits": ("What is the sum of the digits of {m} ** {n}?", "sum(map(int, str({m} ** {n})))"),
    "primes_up_to": (
        "How many primes are there up to {a}?",
        "sum(all(n % d for d in range(2, n)) for n in range(2, {a} + 1))",
    ),
    "primes": (
        "How many primes are there from {a} to {b}?",
        "sum(all(n % d for d in range(2, n)) for n in range({a}, {b} + 1))",
    ),
    "multiples": (
        "How many multiples of {m} are there from {a} to {b}?",
        "sum(n % {m} == 0 for n in range({a}, {b} + 1))",
    ),
    "divisors": ("How many divisors has {a}?", "sum({a} % d == 0 for d in range(1, {a} + 1))"),
    "steps": ("Halve {a} when even, else triple it and add one, until 1. How many steps does it take?", _STEPS),
}
COMPOSED_PROGRAMS = ("digits",)
"""Never in pretraining; held out to see how far the parts already compose."""
PROGRAM_KINDS = tuple(kind for kind in _PROGRAMS if kind not in COMPOSED_PROGRAMS)


def sample_program(rng: random.Random, kind: str) -> Task:
    """A question of `kind` with its program; the result is made up."""
    question, code = _PROGRAMS[kind]
    numbers = {letter: rng.randrange(10 ** (length := rng.randint(3, 5)) // 10, 10**length) for letter in "ab"}
    numbers |= {"m": rng.randint(2, 19), "n": rng.randint(2, 99)}
    code = code.format(**numbers)
    value = str(rng.randrange(10 ** rng.randint(1, 6)))
    wrong = ("python", {"code": str(numbers["a"])})
    system = f"Tools:\n- python(code): {PYTHON_DOCUMENT}"
    return Task(kind, system, question.format(**numbers), ("python", {"code": code}), value, value, (), wrong)
