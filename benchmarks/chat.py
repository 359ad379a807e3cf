"""Parses and renders per second of every chat format, and how each compares with Hermes in the same run.

python benchmarks/chat.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

from rlf.chat import FORMATS
from rlf.chat.standin import stand_in
from rlf.types import ToolCall, ToolDescription

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOL = ToolDescription("search", "Find a passage.", SCHEMA)
CALL = ToolCall("search", {"query": "the town on the river Orr"})
THOUGHT = "I should look for the river first and then for the town that lies on it. " * 10
RESULT = "The river Orr rises in the hills and passes the town of Vell. " * 8


def rate(work: Callable[[], object], rounds: int) -> float:
    """Median calls per second over rounds of about 0.1 s."""
    work()
    rates = []
    for _ in range(rounds):
        started, number = time.perf_counter(), 0
        while time.perf_counter() - started < 0.1:
            for _ in range(20):
                work()
            number += 20
        rates.append(number / (time.perf_counter() - started))
    return median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"{'format':12} {'parses/s':>10} {'ratio':>6} {'renders/s':>10} {'ratio':>6}")
    rates = {}
    for name in ["hermes", *(name for name in FORMATS.names() if name != "hermes")]:
        chat = stand_in(name, [TOOL])
        opening, closing = chat.thinking_marks
        turn = f"{opening}{THOUGHT}{closing}{chat.write_call(CALL)}"
        parses = rate(lambda chat=chat, turn=turn: chat.parse(turn, truncated=False), rounds)
        renders = rate(lambda chat=chat, turn=turn: chat.observation([RESULT], closed=True, turn=turn), rounds)
        rates[name] = parses, renders
        base = rates["hermes"]
        print(f"{name:12} {parses:10.0f} {parses / base[0]:6.2f} {renders:10.0f} {renders / base[1]:6.2f}", flush=True)


if __name__ == "__main__":
    main()
