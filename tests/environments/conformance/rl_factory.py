"""An `Env` by RL-Factory's interface."""

from contextlib import contextmanager
from pathlib import Path

from rlf.types import Message, Task

from ._subject import Subject

FILE = Path(__file__).parents[2] / "apps" / "peers" / "factory_like.py"


@contextmanager
def shared():
    row = {"reward_model": {"ground_truth": {"target": ["Paris"]}}}
    yield Subject(
        {"kind": "rl_factory", "callable": f"{FILE}:Capitals"},
        solve=["<answer>Paris</answer>"],
        score="score",
        hang=["WAIT"],
        breaks=["STOP"],
        says="OSError: the manager is gone",
        task=Task("t", (Message("user", "Go."),), columns=row),
    )


SUBJECTS = {"shared": shared}
