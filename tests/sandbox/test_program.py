"""A program and its test, each in a process of its own: what crosses, and what becomes of either's end."""

import asyncio
import json
import os
import signal

import pytest

from rlf.sandbox import Execution, Level, Request, Sandbox, SandboxLimits, SandboxOutcome, SandboxSpec
from rlf.sandbox.spec import LevelChoice

from .machine import need

each_level = pytest.mark.parametrize("level", [Level.NAMESPACES, Level.LANDLOCK, Level.PROCESS])
PROGRAM = """
import collections, enum, math

LIMIT = 3
print("what a program prints goes nowhere")

class Empty(KeyError):
    pass

class Stack:
    def __init__(self, *items):
        self.items = list(items)

    def push(self, item):
        self.items.append(item)
        return self

    def pop(self):
        if not self.items:
            raise Empty("nothing", 7)
        return self.items.pop()

    def __len__(self):
        return len(self.items)

    def __getitem__(self, at):
        return self.items[at]

class Colour(enum.IntEnum):
    RED = 4

def same(x):
    return x

def plain(kind):
    return {"counter": collections.Counter("aab"), "enum": Colour.RED, "pair": collections.namedtuple("P", "a b")(1, 2),
            "nan": math.nan, "huge": 7 ** 9000}[kind]

def count(n):
    yield from range(n)

def twice(function, x):
    return function(function(x))

def abs(x):
    return -1

if __name__ == "__main__":
    raise SystemExit("it is imported, not started")
"""
TEST = """
for value in (
    None, True, 2, 2.5, -0.0, 1 << 70, "ä\\ud800", b"\\0\\xff", 1j, (1, (2,)), [[]], {1, 2}, frozenset(),
    {(1, 2): {"a": [None]}},
):
    back = same(value)
    assert repr(back) == repr(value) and type(back) is type(value), value
assert plain("counter") == {"a": 2, "b": 1} and type(plain("counter")) is dict
assert plain("enum") == 4 and type(plain("enum")) is int
assert plain("pair") == (1, 2) and plain("nan") != plain("nan") and plain("huge") == 7 ** 9000
assert LIMIT == 3 == program.LIMIT
assert abs(-2) == 2 and program.abs(-2) == -1
stack = Stack(1)
assert stack.push((2,)).pop() == (2,) and len(stack) == 1 and [*stack] == [1] == stack.items and stack[0] == 1
try:
    Stack().pop()
except Empty as error:
    assert error.args == ("nothing", 7) and isinstance(error, KeyError)
else:
    raise AssertionError("no error")
assert list(count(3)) == [0, 1, 2]
assert twice(lambda x: x + "!", "a") == "a!!" and twice(same, 5) == 5
assert Stack.__call__ and same(stack).pop() == 1
from program import abs as theirs
assert theirs(3) == -1
for compared in (lambda: stack == stack, lambda: not stack, lambda: {stack}, lambda: stack != 1, lambda: stack < 1):
    try:
        compared()
    except BaseException:
        continue
    raise AssertionError("an object of the program was compared")
"tested"
"""


def run(level: Level, test: str, program: str, **limits: float) -> Execution:
    spec = SandboxSpec(level=LevelChoice(need(level)), allow_unsafe=level is Level.PROCESS)

    async def main() -> Execution:
        async with Sandbox(spec) as sandbox:
            return await sandbox.run(Request(test, program=program, limits=SandboxLimits(**limits)))

    return asyncio.run(main())


@each_level
def test_plain_values_cross_and_all_else_is_reached_but_not_compared(level: Level) -> None:
    execution = run(level, TEST, PROGRAM)
    assert (execution.error, execution.value, execution.stdout) == (None, "'tested'", "")


def test_a_function_may_have_parameters_of_any_name() -> None:
    program = "def f(self, number, what, keywords): return [self, number, what, keywords]"
    execution = run(Level.PROCESS, "f(self=1, number=2, what=3, keywords=4)", program)
    assert (execution.error, execution.value) == (None, "[1, 2, 3, 4]")


@pytest.mark.parametrize(
    ("program", "outcome", "words"),
    [
        ("import nothing_like_it", SandboxOutcome.ERROR, "the program fails: Traceback"),
        ("import sys; sys.exit(0)", SandboxOutcome.ERROR, "NameError"),
        ("import os; os._exit(0)", SandboxOutcome.ERROR, "the program has ended"),
        ("def f(): import os; os._exit(0)", SandboxOutcome.ERROR, "the program has ended"),
        ("def f(): raise SystemExit(0)", SandboxOutcome.ERROR, "the program raised ['SystemExit'"),
        ("def f(): raise StopIteration", SandboxOutcome.ERROR, "the program raised ['StopIteration'"),
        ("def f(): return 'x' * (1 << 26)", SandboxOutcome.ERROR, "the limit is"),
        ("def f():\n while True: pass", SandboxOutcome.TIMEOUT, "not finished within 2 s"),
    ],
)
def test_a_program_that_does_not_answer_fails_its_test(program: str, outcome: SandboxOutcome, words: str) -> None:
    wall_s = 2 if outcome is SandboxOutcome.TIMEOUT else 30
    execution = run(Level.PROCESS, "try:\n    f()\nexcept Exception as error:\n    raise", program, wall_s=wall_s)
    assert execution.outcome is outcome
    assert execution.error is not None and words in execution.error


SEND = """
import json, os, struct
def send(number, head, size=None):
    head = head if isinstance(head, bytes) else json.dumps(head).encode()
    os.write(4, struct.pack("!QII", number, len(head) if size is None else size, 0) + head)
"""
UNFIT = [
    "5",
    "[]",
    "{}",
    "b'{'",
    "b'\\xff'",
    "{'value': {'int': 5}}",
    "{'value': {'int': 'zz'}}",
    "{'value': {'nothing': 1}}",
    "{'value': {}}",
    "{'value': {'object': 'x'}}",
    "{'value': {'yours': 99}}",
    "{'value': {'set': [[1]]}}",
    "{'value': {'tuple': 'ab'}}",
    "{'value': {'dict': [1]}}",
    "{'value': {'complex': [1]}}",
    "{'value': {'bytes': 'x'}}",
    "{'raised': 5, 'arguments': []}",
    "{'value': 1, 'arguments': 5}",
    "{'value': 1, 'more': 2}",
    "{'do': 'call', 'on': -1, 'arguments': [], 'keywords': {}, 'in_place': False}",
    "{'do': 5}",
    "b'[' * 100_000",
    "{'value': 1}, 2_000_000_000",
]


@pytest.mark.parametrize("answer", UNFIT)
def test_a_program_that_answers_with_something_else_fails_its_test_whatever_the_test_catches(answer: str) -> None:
    program = f"{SEND}\ndef f():\n    send(1, {answer})"
    test = "try:\n    f()\nexcept Exception:\n    pass\n'passed'"
    execution = run(Level.PROCESS, test, program, wall_s=30)
    assert (execution.outcome, execution.value) == (SandboxOutcome.ERROR, None)
    assert execution.error is not None and "the program" in execution.error


@each_level
@pytest.mark.parametrize(
    "program",
    [
        f"{SEND}\ndef f():\n    send(1, {{'value': 7}})\n    return 7",
        f"{SEND}\ndef f():\n    send(2, {{'value': 7}})\n    return 7",
        f"{SEND}\nsend(0, {{'failed': None, 'names': {{}}}})\ndef f(): return 7",
        f"{SEND}\nos.write(4, b'Loading model... 100%\\n')\ndef f(): return 7",
        "import os\ndef f():\n    os.write(3, b'Loading model... 100%\\n')\n    import time; time.sleep(30)",
        "import os\nwhile True: os.write(3, bytes(1 << 16))",
    ],
)
def test_a_program_answers_each_question_once_and_says_nothing_to_rlf(level: Level, program: str) -> None:
    execution = run(level, "assert f() == 7\nassert f() == 7\n'passed'", program, wall_s=30)
    assert (execution.outcome, execution.value) == (SandboxOutcome.ERROR, None)


def test_what_ends_with_the_server_is_infrastructures_fault() -> None:
    async def main() -> Execution:
        async with Sandbox(SandboxSpec(level=LevelChoice.PROCESS, allow_unsafe=True)) as sandbox:
            running = asyncio.ensure_future(
                sandbox.run(Request("f()", program="import time\ndef f():\n    time.sleep(600)"))
            )
            await asyncio.sleep(0.3)
            os.kill(sandbox.server_pid or 0, signal.SIGKILL)
            return await running

    assert asyncio.run(main()).outcome is SandboxOutcome.INFRA


def test_lines_of_a_test_are_reported_where_it_fails() -> None:
    execution = run(Level.PROCESS, "x = f(1)\nassert x == 2, x", "def f(x):\n    return x")
    assert execution.error is not None and execution.error.endswith("AssertionError: 1")
    assert json.dumps(execution.error).count("<code>") == 1


OWN_END = {
    "kill": "import os; os.kill(os.getpid(), 9)",
    "raise": "import signal; signal.raise_signal(9)",
    "thread": "import signal, threading; signal.pthread_kill(threading.get_ident(), 9)",
    "limit": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (0, 0))\nwhile True: pass",
    "timer": """
import ctypes, platform, struct, time
libc, number = ctypes.CDLL(None), {"x86_64": 222, "aarch64": 107}[platform.machine()]
event = (ctypes.c_ubyte * 64)(*bytes(8), *struct.pack("i", 9))
timer = ctypes.c_long()
libc.syscall(number, 1, event, ctypes.byref(timer))
libc.syscall(number + (1 if number == 222 else 3), timer, 0, (ctypes.c_long * 4)(0, 0, 0, 1000), None)
time.sleep(0.2)
""",
}


@pytest.mark.parametrize("level", [Level.NAMESPACES, Level.LANDLOCK])
def test_no_code_makes_its_own_end_look_like_one_from_outside(level: Level) -> None:
    """Else a policy could have whatever it fails at left out of its group."""

    async def main() -> dict[str, SandboxOutcome]:
        async with Sandbox(SandboxSpec(level=LevelChoice(need(level)))) as sandbox:
            limits = SandboxLimits(wall_s=20, cpu_s=2)
            return {
                name: (await sandbox.run(Request(source, limits=limits))).outcome for name, source in OWN_END.items()
            }

    assert SandboxOutcome.INFRA not in asyncio.run(main()).values()
