"""`env: {kind: rows}`: whose process plays a row, and whom it asks."""

import asyncio
import json
import os

import pytest

from rlf.apps.bench.rows import RowsEnv, RowWorld
from rlf.tools.results import ToolFailure
from rlf.types import Message, Task


class Counter(RowWorld):
    """Counts the rows that its process has played."""

    def __init__(self, again):
        self._again, self._num_rows = again, 0

    def reset(self, task, seed):
        if task.id == "broken":
            os._exit(1)
        self._num_rows += 1

    def score(self):
        return {"pid": float(os.getpid()), "rows": float(self._num_rows)}

    def close(self):
        return self._again


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"id": "a", "prompt": "a", "tools": []}) + "\n")
    return str(file)


def env_of(rows, name, scores, **more):
    return RowsEnv(kind="rows", rows=(rows,), callable=f"{__name__}:{name}", scores=scores, **more)


async def play_rows(env, ids):
    """The scores of rows that are played one after the other."""
    found = []
    async with env.open() as make:
        for name in ids:
            world = await make()
            try:
                await world.reset(Task(name, (Message("user", "a"),), columns={}), 0)
                found.append(dict(await world.score()))
            except ToolFailure:
                found.append({})
            finally:
                await world.close()
    return found


@pytest.mark.parametrize("again", [True, None])
def test_a_process_plays_another_row_where_its_world_says_so_and_is_well(rows, again):
    env = env_of(rows, "Counter", ("pid", "rows"), args={"again": again})
    first, second, broken, last = asyncio.run(play_rows(env, ["a", "b", "broken", "c"]))
    assert (first["pid"] == second["pid"]) is bool(again)
    assert second["rows"] == (2 if again else 1)
    assert broken == {} and last["rows"] == 1 and last["pid"] != second["pid"]
