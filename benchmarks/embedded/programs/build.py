"""`python -m benchmarks.embedded.programs.build [folder]` writes the shipped questions again, bit for bit."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.embedded.rows import write_questions
from rlf.builtin.names import builtin_path

_SEED = 0
_NUM = {"train": 512, "heldout": 64}


class _Asked(NamedTuple):
    question: str
    answer: str
    kind: str


def build(folder: Path) -> None:
    """Writes `train.jsonl` and `heldout.jsonl` into `folder`; no question is in both."""
    rng = random.Random(f"programs:{_SEED}")
    makers = (_product, _digits, _primes, _divisors, _steps)
    asked: dict[str, _Asked] = {}
    while len(asked) < sum(_NUM.values()):
        one = rng.choice(makers)(rng)
        asked.setdefault(one.question, one)
    questions = list(asked.values())
    for split, number in _NUM.items():
        write_questions(folder / f"{split}.jsonl", [questions.pop() for _ in range(number)])


def _product(rng: random.Random) -> _Asked:
    first, second = rng.randint(1000, 99999), rng.randint(1000, 99999)
    return _Asked(f"What is {first} * {second}?", str(first * second), "product")


def _digits(rng: random.Random) -> _Asked:
    base, power = rng.randint(2, 19), rng.randint(20, 90)
    answer = sum(int(digit) for digit in str(base**power))
    return _Asked(f"What is the sum of the digits of {base} ** {power}?", str(answer), "digits")


def _primes(rng: random.Random) -> _Asked:
    low = rng.randint(100, 9000)
    high = low + rng.randint(50, 900)
    answer = sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(low, high + 1))
    return _Asked(f"How many primes are there from {low} to {high}?", str(answer), "primes")


def _divisors(rng: random.Random) -> _Asked:
    number = rng.randint(1000, 50000)
    answer = sum(number % d == 0 for d in range(1, number + 1))
    return _Asked(f"How many divisors has {number}?", str(answer), "divisors")


def _steps(rng: random.Random) -> _Asked:
    start = number = rng.randint(100, 9999)
    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    question = f"Halve {start} when even, else triple it and add one, until 1. How many steps does it take?"
    return _Asked(question, str(steps), "steps")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else builtin_path("programs/train").parent)
