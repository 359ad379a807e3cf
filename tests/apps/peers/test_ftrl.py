"""FTRL's rows as a world: their own tools, run in the sandbox, and their sub-questions scored."""

import asyncio
import json
from pathlib import Path

from rlf.apps.build.build import write_ftrl
from rlf.apps.build.folder import build_world, read_world
from rlf.apps.peers import ftrl
from rlf.core import identity as remember
from rlf.data import load_tasks
from rlf.data.source import read_rows
from rlf.environments import EnvSpec, WorldPool
from rlf.spec import load_spec
from rlf.spec.paths import local_inputs
from rlf.types import Outcome, ToolCall

from ...environments.conftest import STOP, call
from ..build.worlds import settings


def write(path, *rows):
    """Rows of FTRL, from tools by name with their description and source."""
    lines = []
    for tools in rows:
        documents = [{"type": "function", "function": {"name": n, "description": d}} for n, (d, _) in tools.items()]
        codes = {name: source for name, (_, source) in tools.items() if source is not None}
        row = {"tools": json.dumps(documents), "codes": json.dumps(codes), "unsolved_set": '{"look": ["Orla"]}'}
        lines.append(json.dumps({"messages": [{"role": "user", "content": "Which river?"}], **row}))
    path.write_text("\n".join(lines))
    return EnvSpec.model_validate({"kind": "ftrl", "rows": [str(path)]})


LOOK = ("Look.", "def look():\n    return ['Orla']")
TELL = ("Tell.", "import math\ndef tell():\n    return math.pi")


def test_gold_calls_of_a_built_worlds_rows_solve_them(tmp_path):
    out = tmp_path / "small"
    build_world(settings(out, complexity={"function": 3, "parameters": 2, "types": 1}), lambda *_: None)
    files = [str(path) for path in write_ftrl(out)]
    spec = load_spec([out / "ftrl" / "spec.yaml"]).spec
    assert spec.env.kind == "ftrl" and spec.env.static_complaints() == []
    assert "certificate.json" in {Path(file.path).name for file in local_inputs(spec)}
    steps = {task.id: task.steps for task in read_world(out)[1]}
    names = [tool.name for tool in EnvSpec.model_validate({"kind": "ftrl", "rows": files}).tools]
    rows = load_tasks(files[0], prompt="messages", answer="answer", tools="tools", id="id", declared=names)[::5]

    async def play(worlds, row):
        episode = worlds.open(row.id, row)
        await episode.reset()
        for step in steps[row.id]:
            await episode.call(ToolCall(step.tool, step.filled([each.gold for each in steps[row.id]])))
        await episode.score()
        await episode.close()
        return episode.record.scores

    async def go():
        async with WorldPool(EnvSpec.model_validate({"kind": "ftrl", "rows": files}), seed=0) as worlds:
            return [await play(worlds, row) for row in rows]

    assert asyncio.run(go()) == [{"solved": 1.0}] * len(rows)


def test_a_trajectory_has_the_tools_of_its_row_alone(played, tmp_path):
    env = write(tmp_path / "rows.jsonl", {"look": LOOK}, {"tell": TELL})
    assert [tool.name for tool in env.tools] == ["look", "tell"] and env.complaints() == []
    tasks = load_tasks(
        str(tmp_path / "rows.jsonl"), prompt="messages", answer=None, tools="tools", declared=["look", "tell"]
    )
    script = [call("tell") + STOP, call("look") + STOP, call("look") + STOP, f"Orla.{STOP}"]
    (trajectory,), _ = played(env, script, task=tasks[0])
    outcomes = [record.result.outcome for record in trajectory.calls]
    assert outcomes == [Outcome.UNKNOWN_TOOL, Outcome.OK, Outcome.OK] and trajectory.world.scores == {"solved": 1.0}


def test_what_the_source_raises_is_read_by_the_model_and_its_state_stays(played, tmp_path):
    source = (
        "n = 0\ndef look():\n    global n\n    n += 1\n    if n < 2:\n        raise KeyError('not yet')\n    return n"
    )
    env = write(tmp_path / "rows.jsonl", {"look": ("Look.", source)})
    task = load_tasks(str(tmp_path / "rows.jsonl"), prompt="messages", answer=None)[0]
    (trajectory,), _ = played(env, [call("look") + STOP, call("look") + STOP, f"!{STOP}"], task=task)
    assert [record.result.outcome for record in trajectory.calls] == [Outcome.TOOL_ERROR, Outcome.OK]
    assert "KeyError: 'not yet'" in trajectory.calls[0].result.text and trajectory.calls[1].result.text == "2"


def test_rows_whose_tools_cannot_be_run_are_faults_before_the_run(tmp_path):
    wrong = write(tmp_path / "rows.jsonl", {"look": ("Look.", None), "tell": ("Tell.", "def told(): pass")})
    assert wrong.static_complaints() == [
        "codes: the tool 'look' has no source (1 rows)",
        "codes: the source of the tool 'tell' defines no function of that name (1 rows)",
    ]
    for empty in ("{}", '{"look": []}', '{"look": [null]}'):
        (tmp_path / "empty.jsonl").write_text(
            (tmp_path / "rows.jsonl").read_text().replace('{\\"look\\": [\\"Orla\\"]}', json.dumps(empty)[1:-1])
        )
        (complaint,) = wrong.model_copy(update={"rows": (str(tmp_path / "empty.jsonl"),)}).static_complaints()[2:]
        assert complaint == "unsolved_set: there is nothing to solve, and so no score; remove such rows (1 rows)"
    assert wrong.missing_columns(["tools", "codes"]) == ["unsolved_set"]


def test_each_row_sees_a_tool_as_it_describes_it_itself(tmp_path):
    env = write(tmp_path / "rows.jsonl", {"look": LOOK}, {"look": ("Look again.", LOOK[1])})
    (shared,) = env.describe_tools()
    rows = load_tasks(str(tmp_path / "rows.jsonl"), prompt="messages", answer=None)
    seen = [tool.description for row in rows for tool in env.tools_of(row.columns)]
    assert seen == [LOOK[0], "Look again."] and shared.description not in seen


def test_rows_of_an_unchanged_file_are_surveyed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(ftrl, "MIN_BYTES", 0)
    monkeypatch.setattr(remember, "_SETTLED_S", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read: list[str] = []
    monkeypatch.setattr(ftrl, "read_rows", lambda path, *rest: read.append(path) or read_rows(path, *rest))
    for _ in range(2):
        env = write(tmp_path / "rows.jsonl", {"look": LOOK}, {"tell": TELL, "look": LOOK})
        for _ in range(2):
            assert env.static_complaints() == env.complaints() == []
            assert [tool.name for tool in env.describe_tools()] == ["look", "tell"]
    assert len(read) == 2
