"""A class: on threads, and in processes of its own."""

from contextlib import contextmanager
from pathlib import Path

from rlf.types import ToolCall

from ._subject import Subject

FILE = Path(__file__).parents[1] / "worlds.py"


def subject(isolation, hang, breaks, says):
    @contextmanager
    def made():
        env = {"kind": "python", "callable": f"{FILE}:Obedient", "isolation": isolation}
        yield Subject(
            env,
            solve=[ToolCall("add", {"amount": 1}), ToolCall("add", {"amount": 2})],
            score="exact",
            hang=[ToolCall("do", {"what": hang})],
            breaks=[ToolCall("do", {"what": breaks})],
            says=says,
        )

    return made


SUBJECTS = {
    "thread": subject("thread", "hang", "break", "RuntimeError: the world is broken"),
    "process": subject("process", "hang", "break", "RuntimeError: the world is broken"),
    "sandbox": subject("sandbox", "hang", "break", "RuntimeError: the world is broken"),
    "sandbox_that_leaves": subject("sandbox", "compute", "leave", "the world's code ended its process (killed)"),
    "process_that_computes": subject("process", "compute", "leave", "the world's process ended (exit code 3)"),
    "process_that_ignores": subject("process", "ignore", "die", "the world's process ended (SIGSEGV)"),
    "process_that_leaves_threads": subject("process", "thread", "exit", "SystemExit: 4"),
}
