"""CPU time of parsing and rendering in every chat format: a call after thinking, an answer of 70 words, a result.

python benchmarks/chat.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

from rlf.chat import FORMATS
from rlf.chat.repair import stand_in
from rlf.types import ToolCall, ToolDescription

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOL = ToolDescription("search", "Find a passage.", SCHEMA)
CALL = ToolCall("search", {"query": "the town on the river Orr"})
THOUGHT = "I should look for the river first and then for the town that lies on it. " * 10
RESULT = "The river Orr rises in the hills and passes the town of Vell. " * 8


def cost_us(work: Callable[[], object], rounds: int) -> float:
    """Median CPU microseconds of a call, over rounds of about 0.1 s."""
    work()
    costs = []
    for _ in range(rounds):
        started, number = time.process_time(), 0
        while time.process_time() - started < 0.1:
            for _ in range(20):
                work()
            number += 20
        costs.append(1e6 * (time.process_time() - started) / number)
    return median(costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"{'microseconds':15} {'call':>8} {'answer':>8} {'result':>8}")
    for name in FORMATS.names():
        chat = stand_in(name, [TOOL])
        opening, closing = chat.thinking_marks
        turn = f"{opening}{THOUGHT}{closing}{chat.write_call(CALL)}"
        said = f"{opening}{THOUGHT}{closing}{chat.write_answer(RESULT)}"
        call = cost_us(lambda chat=chat, turn=turn: chat.parse(turn, truncated=False), rounds)
        answer = cost_us(lambda chat=chat, said=said: chat.parse(said, truncated=False), rounds)
        result = cost_us(lambda chat=chat, turn=turn: chat.observation([RESULT], closed=True, turn=turn), rounds)
        print(f"{name:15} {call:8.1f} {answer:8.1f} {result:8.1f}", flush=True)


if __name__ == "__main__":
    main()
