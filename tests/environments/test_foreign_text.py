"""Text that is not valid Unicode, or has no bounds, in whatever a world says or raises, wherever its code runs."""

from pathlib import Path

import pytest

from rlf.core.redact import Redactor
from rlf.core.text import MAX_ERROR_CHARS
from rlf.types import Message, Outcome, Phase, Task
from rlf.types.written import write

from ..hostile import FAULTS
from .conftest import STOP, call

HOSTILE = Path(__file__).parents[1] / "hostile.py"
REFUSED = {*FAULTS} - {"os", "group", "deep", "exit", "stop", "base"}
"""Exceptions of a call that the model reads; all others are the world's own failure."""
ISOLATIONS = ["inline", "thread", "process"]


def hostile(isolation, **args):
    return {"kind": "python", "callable": f"{HOSTILE}:World", "isolation": isolation, "args": args, "keep_state": True}


def assert_storable(trajectory):
    """A trajectory can be written to a file and a database, and its error has bounds."""
    Redactor({}).json(write(trajectory)).encode()
    for text in (trajectory.error or "", *(record.result.text for record in trajectory.calls)):
        text.encode()
    assert len(trajectory.error or "") <= MAX_ERROR_CHARS + 100


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_whatever_a_world_says_can_be_read_and_stored(played, isolation):
    (trajectory,), _ = played(hostile(isolation), [call("act", what="x") + STOP, f"a{STOP}", f"b{STOP}"])
    assert trajectory.error is None
    assert trajectory.world.observation == "half \ufffda\ufffdb"
    assert trajectory.calls[0].result.text == "half \ufffd"
    assert trajectory.world.scores == {"half \ufffd": 1.0}
    assert_storable(trajectory)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(
    ("place", "phase"),
    [("init", "reset"), ("reset", "reset"), ("state", "reset"), ("reply", "reply"), ("score", "score")],
)
def test_whatever_a_world_raises_is_its_failure_in_words_that_can_be_stored(played, isolation, place, phase):
    names = ("name", "exits", "deep", "class", "attributes", "metaclass")
    # How it is written does not depend on the place; each world of a process of its own is one more to start.
    for name in names if isolation != "process" or place == "score" else names[:2]:
        (trajectory,), _ = played(hostile(isolation, phase=place, what=name), [f"a{STOP}", f"b{STOP}"])
        assert trajectory.world.failed is Phase(phase), name
        assert_storable(trajectory)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_whatever_a_call_raises_is_read_by_the_model_or_the_worlds_failure(played, isolation):
    scripts = [[call("act", what=name) + STOP, f"a{STOP}"] for name in FAULTS]
    for name, trajectory in zip(FAULTS, played(hostile(isolation), *scripts)[0], strict=True):
        expected = Outcome.TOOL_ERROR if name in REFUSED else Outcome.INFRA
        assert trajectory.calls[0].result.outcome is expected, name
        assert_storable(trajectory)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_whatever_a_world_raises_at_its_close_is_logged_in_valid_text(played, isolation, caplog):
    for name in ("name", "exits", "long", "attributes", "metaclass"):
        played(hostile(isolation, phase="close", what=name), [f"a{STOP}", f"b{STOP}"])
    for record in caplog.records:
        record.getMessage().encode()
    assert "close: ValueError: no file 'caf\ufffd.txt'" in caplog.text


def test_a_sandboxed_world_that_raises_what_has_no_text_refuses_the_call(played):
    names = ("name", "no_text", "subclass", "long")
    scripts = [[call("act", what=name) + STOP, f"a{STOP}"] for name in names]
    for name, trajectory in zip(names, played(hostile("sandbox"), *scripts)[0], strict=True):
        assert trajectory.calls[0].result.outcome is Outcome.TOOL_ERROR, name
        assert_storable(trajectory)


CALLED = '''
class Called:
    def reset(self, name: str, instance: str, call: str):
        return f"{name} {instance} {call}"

    def score(self):
        return 1.0

    def wait(self) -> str:
        """Waits."""
        return "."
'''


@pytest.mark.parametrize("isolation", [*ISOLATIONS, "sandbox"])
def test_columns_may_have_the_names_of_what_a_world_is_asked_by(played, isolation, tmp_path):
    (tmp_path / "called.py").write_text(CALLED)
    columns = {"name": "Bo", "instance": "one", "call": "two"}
    env = {"kind": "python", "callable": f"{tmp_path / 'called.py'}:Called", "isolation": isolation}
    ((one,), _) = played(env, [f"a{STOP}"], task=Task("t", (Message("user", "Go."),), columns=columns))
    assert one.world is not None and one.world.observation == "Bo one two", one.error
