"""A task's first world is reset, and its others begin with a copy: the same worlds, with fewer resets."""

import asyncio
import logging
from pathlib import Path

import pytest

from rlf.environments import EnvSpec, WorldPool
from rlf.types import Message, Task, ToolCall, WorldFailure

WORLDS = """
from pathlib import Path

LOG = Path(__file__).with_name("resets")


class Ledger:
    def reset(self, first: int, seed: int) -> str:
        with LOG.open("a") as log:
            print(first, file=log)
        if first < 0:
            raise OSError("no such ledger")
        self.items = [first]
        return f"The ledger begins with {first}."

    def add(self, item: int) -> str:
        '''Add an item.

        Args:
            item: what to add.
        '''
        self.items.append(item)
        return str(self.items)

    def state(self):
        return self.items

    def score(self) -> float:
        return float(sum(self.items))

    def snapshot(self):
        return list(self.items)

    def restore(self, snapshot):
        self.items = list(snapshot)


class Forgets(Ledger):
    def restore(self, snapshot):
        self.items = []


class Raises(Ledger):
    def snapshot(self):
        raise RuntimeError("no copies today")


class Shares(Ledger):
    state = None

    def snapshot(self):
        return self.items

    def restore(self, snapshot):
        self.items = snapshot


class Holds(Ledger):
    def snapshot(self):
        return lambda: self.items


class Plain(Ledger):
    snapshot = None


class Prepared(Plain):
    @classmethod
    def import_shared(cls):
        cls.step = 100
        with LOG.open("a") as log:
            print("prepared", file=log)

    def reset(self, first: int, seed: int) -> str:
        return super().reset(first + self.step, seed)


class Unseeded(Ledger):
    def reset(self, first: int) -> str:
        return super().reset(first, 0)
"""
NUM = 4
TASKS = [Task(f"t{first}", (Message("user", "Go."),), columns={"first": first}) for first in (1, 2, 3)]


def begin(folder, env, tasks=TASKS, *, copies=True):
    """What each world says and shows at first, after a call, and as its score; and the number of resets."""
    (folder / "worlds.py").write_text(WORLDS)

    async def play(episode, item):
        try:
            said = await episode.reset()
        except WorldFailure as fault:
            return str(fault)
        first = episode.record.first_state
        called = await episode.call(ToolCall("add", {"item": item}))
        await episode.score()
        return said, first, called.text, dict(episode.record.scores)

    async def go():
        spec = EnvSpec.model_validate(env)
        async with WorldPool(spec, seed=7, copies=copies) as worlds:
            made = [(worlds.open(f"{task.id}/{at}", task), at) for task in tasks for at in range(NUM)]
            played = await asyncio.gather(*(play(*one) for one in made))
            await asyncio.gather(*(episode.close() for episode, _ in made))
            return played

    played, log = asyncio.run(go()), Path(folder, "resets")
    return played, len(log.read_text().splitlines()) if log.exists() else 0


def python(folder, name, **keys):
    return {"kind": "python", "callable": f"{folder / 'worlds.py'}:{name}"} | keys


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_task_is_reset_once_and_its_other_worlds_are_the_same(tmp_path, isolation):
    env = python(tmp_path, "Ledger", isolation=isolation)
    alone, num_alone = begin(tmp_path, env, copies=False)
    copied, num = begin(tmp_path, env)
    assert copied == alone and (num_alone, num - num_alone) == (NUM * len(TASKS), len(TASKS))


def test_a_copy_holds_nothing_of_the_world_that_goes_on(tmp_path):
    env = python(tmp_path, "Shares", isolation="inline")
    assert begin(tmp_path, env) == (begin(tmp_path, env, copies=False)[0], len(TASKS))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Forgets", "restore leads to another state"),
        ("Raises", "snapshot: RuntimeError: no copies"),
        ("Holds", "snapshot: "),
    ],
)
def test_copies_that_are_not_the_world_are_found_before_it_is_played(tmp_path, caplog, name, words):
    alone, _ = begin(tmp_path, python(tmp_path, name), copies=False)
    with caplog.at_level(logging.WARNING):
        copied, _ = begin(tmp_path, python(tmp_path, name))
    assert copied == alone
    assert [words in record.message for record in caplog.records].count(True) == 1


@pytest.mark.parametrize(("name", "isolation"), [("Plain", "thread"), ("Unseeded", "process")])
def test_a_world_without_copies_or_with_shared_random_numbers_is_reset_each_time(tmp_path, name, isolation):
    played, num = begin(tmp_path, python(tmp_path, name, isolation=isolation))
    assert num == len(played) == NUM * len(TASKS)


def test_where_the_first_reset_fails_each_other_world_is_reset_by_itself(tmp_path):
    played, num = begin(tmp_path, python(tmp_path, "Ledger"), [Task("t", (), columns={"first": -1})])
    assert num == NUM and all("no such ledger" in fault for fault in played)


def test_worlds_of_a_mix_begin_by_copy_each_by_its_own(tmp_path):
    worlds = {name: python(tmp_path, name) for name in ("Ledger", "Plain")}
    tasks = [Task(f"{name}{first}", (), columns={"first": first, "env": name}) for name in worlds for first in (1, 2)]
    env = {"kind": "several", "worlds": worlds}
    alone, _ = begin(tmp_path, env, tasks, copies=False)
    (tmp_path / "resets").unlink()
    copied, num = begin(tmp_path, env, tasks)
    assert copied == alone and num == 2 + 2 * NUM


def test_a_database_that_is_set_up_by_statements_is_copied_as_it_stands_after_them(tmp_path):
    (tmp_path / "seed.sql").write_text("create table items (item);")
    parameters = {"item": {"type": "integer"}}
    env = {
        "kind": "sql",
        "database": str(tmp_path / "seed.sql"),
        "setup": ["insert into items values (:first)"],
        "statements": {
            "add": {"description": "Add.", "sql": "insert into items values (:item)", "parameters": parameters}
        },
        "scores": {"score": {"assert": "select sum(item) from items"}},
    }
    assert begin(tmp_path, env) == begin(tmp_path, env, copies=False)


@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
def test_what_instances_share_is_loaded_once_before_them(tmp_path, isolation):
    played, num = begin(tmp_path, python(tmp_path, "Prepared", isolation=isolation))
    assert [one[0] for one in played[::NUM]] == [f"The ledger begins with {100 + at}." for at in (1, 2, 3)]
    assert num == 1 + len(played) and [
        tool.name for tool in EnvSpec.model_validate(python(tmp_path, "Prepared")).tools
    ] == ["add"]
