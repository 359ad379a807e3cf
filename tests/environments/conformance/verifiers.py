"""A taskset of verifiers."""

from contextlib import contextmanager

import pytest

from rlf.types import Message, Task

from ..test_verifiers import PYTHON, TASKSET
from ._subject import Subject


@contextmanager
def taskset():
    if not list(PYTHON.parents[1].glob("lib/*/site-packages/verifiers")):
        pytest.skip(f"{PYTHON} has no verifiers: `make .venv/worlds/ready` installs it")
    yield Subject(
        {"kind": "verifiers", "file": str(TASKSET), "python": str(PYTHON)},
        solve=["Rome"],
        score="exact",
        hang=["HANG"],
        breaks=["BREAK"],
        says="the atlas is torn",
        task=Task("t", (Message("user", "Answer."),), columns={"index": 1}),
        is_costly=True,
    )


SUBJECTS = {"taskset": taskset}
