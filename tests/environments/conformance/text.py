"""A text world."""

from contextlib import contextmanager
from pathlib import Path

from ._subject import Subject

FILE = Path(__file__).parents[1] / "gym_like.py"


def subject(isolation):
    @contextmanager
    def made():
        yield Subject(
            {"kind": "text", "make": f"{FILE}:Steady", "isolation": isolation},
            solve=["5", "7"],
            score="score",
            hang=["0"],
            breaks=["many"],
            says="ValueError: invalid literal for int()",
            shares_fate=isolation == "thread",
        )

    return made


SUBJECTS = {"thread": subject("thread"), "process": subject("process")}
