"""A taskset of verifiers."""

from contextlib import contextmanager

from rlf.types import Message, Task

from ...apps.peers.test_verifiers import TASKSET, find_python
from ._subject import Subject


@contextmanager
def taskset():
    yield Subject(
        {"kind": "verifiers", "file": str(TASKSET), "python": find_python()},
        solve=["Rome"],
        score="exact",
        hang=["HANG"],
        breaks=["BREAK"],
        says="the atlas is torn",
        task=Task("t", (Message("user", "Answer."),), columns={"index": 1}),
    )


SUBJECTS = {"taskset": taskset}
