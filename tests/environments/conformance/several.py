"""Worlds by name, of which the row names one."""

from contextlib import contextmanager
from dataclasses import replace

from rlf.types import Message, Task

from . import python


@contextmanager
def made():
    with python.SUBJECTS["process"]() as inner:
        worlds = {"other": {"kind": "python", "callable": f"{python.FILE}:Counter"}, "mine": inner.env}
        task = Task("t", (Message("user", "Go."),), 3, columns={"answer": 3, "env": "mine"})
        yield replace(inner, env={"kind": "several", "worlds": worlds}, task=task)


SUBJECTS = {"named": made}
