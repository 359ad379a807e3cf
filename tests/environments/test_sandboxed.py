"""Classes of others in a sandbox: never imported, held to their own process, with snapshots that stay opaque."""

import asyncio
import sys

import pytest

from rlf.core import RlfError
from rlf.environments import EnvSpec, WorldPool
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall

SOURCE = '''
import os, socket, sys
from rlf.environments import Step

sys.modules["ran_at_import"] = sys


class Base:
    def __init__(self, size: int = 3):
        self.size, self.read = size, []

    def peek(self, path: str) -> str:
        """Read a file.

        Args:
            path: which one.
        """
        return open(path).read()


class Spy(Base):
    """Looks around."""

    def reset(self, task, seed: int, answer: int = 0):
        self.goal = (task.columns["answer"], answer, seed)
        return f"Goal {answer}."

    async def note(self, number: int) -> Step:
        """Note a number.

        Args:
            number: which one.
        """
        if number < 0:
            raise ValueError("a number below 0")
        self.read.append(number)
        return Step({"noted": self.read}, reward=0.5, done=len(self.read) == self.size)

    def call(self, host: str) -> str:
        """Open a connection.

        Args:
            host: where to.
        """
        socket.create_connection((host, 80), timeout=1)
        return "open"

    def score(self):
        return {"sum": sum(self.read), "mine": self.goal[0] == self.goal[1]}

    def state(self):
        return {"read": self.read}

    def snapshot(self):
        return self.read

    def restore(self, snapshot):
        self.read = snapshot
'''


@pytest.fixture
def env(tmp_path):
    (tmp_path / "spy.py").write_text(SOURCE)
    return {"kind": "python", "callable": f"{tmp_path}/spy.py:Spy", "isolation": "sandbox", "args": {"size": 2}}


def test_a_class_in_a_sandbox_is_a_world_that_this_process_never_imports(env, tmp_path):
    spec = EnvSpec.model_validate(env)
    assert [tool.name for tool in spec.tools] == ["peek", "note", "call"] and spec.complaints() == []
    secret = tmp_path / "secret.txt"
    secret.write_text("of the host")

    async def go():
        async with WorldPool(spec, seed=0) as worlds:
            episode = worlds.open("a", Task("t", (), columns={"answer": 7}))
            assert await episode.reset() == "Goal 7."
            assert (await episode.call(ToolCall("note", {"number": 4}))).text == '{"noted": [4]}'
            with pytest.raises(ToolFailure, match="ValueError: a number below 0"):
                await episode.call(ToolCall("note", {"number": -1}))
            await episode.close()
            for call in (ToolCall("peek", {"path": str(secret)}), ToolCall("call", {"host": "127.0.0.1"})):
                episode = worlds.open("b", Task("t", (), columns={"answer": 7}))
                await episode.reset()
                with pytest.raises(ToolFailure, match=r"FileNotFoundError|Operation not permitted"):
                    await episode.call(call)
                await episode.close()

    asyncio.run(go())
    assert "ran_at_import" not in sys.modules


LIAR = '''
import json, sys


class Liar:
    def __init__(self, answer: str):
        main = sys.modules["__main__"]
        main.call_instance = lambda asked: eval(answer)

    def lie(self) -> str:
        """Lie."""
'''


@pytest.mark.parametrize(
    "answer",
    [
        "'no JSON'",
        "5",
        "None",
        "json.dumps(5)",
        "json.dumps([])",
        "json.dumps({})",
        "json.dumps({'value': 1})",
        "json.dumps({'value': 1, 'kept': {'home': 'another session'}, 'step': None})",
        "json.dumps({'value': 1, 'kept': {'state': 5}, 'step': None})",
        "json.dumps({'value': 1, 'kept': [], 'step': None})",
        "json.dumps({'value': 1, 'kept': {}, 'step': 5})",
        "json.dumps({'value': 1, 'kept': {}, 'step': ['said', 'much', False]})",
        "json.dumps({'refusal': 5})",
        "json.dumps({'failure': ['ok', 5]})",
        "'[' * 50_000",
        "type('Deep', (), {'__repr__': lambda self: '(' * 50_000})()",
        "type('Deep', (), {'__repr__': lambda self: '-' * 50_000 + '1'})()",
        """type('Two', (), {'__repr__': lambda self: "'{}' + '{}'"})()""",
    ],
)
def test_what_a_class_answers_for_its_instance_is_checked_and_changes_nothing_else(tmp_path, answer):
    (tmp_path / "liar.py").write_text(LIAR)
    env = {"kind": "python", "callable": f"{tmp_path}/liar.py:Liar", "isolation": "sandbox", "args": {"answer": answer}}

    async def go():
        async with WorldPool(EnvSpec.model_validate(env), seed=0) as worlds:
            episode = worlds.open("a", Task("t", ()))
            await episode.reset()
            with pytest.raises(ToolFailure, match="something else than a result") as failed:
                await episode.call(ToolCall("lie", {}))
            assert failed.value.outcome is Outcome.INFRA
            await episode.close()

    asyncio.run(go())


def test_a_snapshot_of_a_sandboxed_instance_goes_on_in_another(env):
    async def go():
        async with EnvSpec.model_validate(env).open() as make:
            world, fork = await make(), await make()
            await world.reset(Task("t", (), columns={"answer": 7}), 0)
            await world.call(ToolCall("note", {"number": 4}))
            await fork.restore(await world.snapshot())
            step = await fork.call(ToolCall("note", {"number": 5}))
            assert step.done and await fork.state() == {"read": [4, 5]} and await world.state() == {"read": [4]}
            await world.close()
            await fork.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"callable": "worlds:Spy"}, "a sandbox runs one file"),
        ({"isolation": "thread", "sandbox": {"packages": ["numpy"]}}, "`sandbox` needs `isolation: sandbox`"),
        ({"sandbox": {"level": "remote", "url": "http://127.0.0.1:1"}}, "level `remote` keeps no sessions"),
    ],
)
def test_keys_that_do_not_fit_a_sandbox_are_faults(env, changed, words):
    with pytest.raises(ValueError, match=words):
        EnvSpec.model_validate(env | changed)


def test_what_the_source_does_not_settle_is_a_fault(env, tmp_path):
    (tmp_path / "spy.py").write_text("import shop\nclass Spy(shop.Base):\n    def act(self): ...\n")
    with pytest.raises(RlfError, match=r"its base 'shop\.Base' is not in the same file"):
        EnvSpec.model_validate(env).complaints()
    (tmp_path / "spy.py").write_text("class Spy:\n    def act(self, what: Thing): ...\n")
    with pytest.raises(RlfError, match="a type or default is not built in"):
        EnvSpec.model_validate(env).complaints()
