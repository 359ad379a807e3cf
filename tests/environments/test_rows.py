"""Rows that bring their own tools: each trajectory sees its row's, and the class judges all that was written."""

import asyncio
import json
from pathlib import Path

from rlf.chat.repair import stand_in
from rlf.environments import ENV_KINDS, WorldPool
from rlf.rollout import Rollout, RolloutLimits, Setting, play
from rlf.rollout.scripted import ScriptedPolicy
from rlf.tools.execution.executor import Executor
from rlf.types import Message, Outcome, Sampling, Task, ToolCall

FILE = Path(__file__).with_name("row_worlds.py")


def document(name, description, **properties):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": sorted(properties)},
        },
    }


ROWS = [
    {"prompt": "Go.", "answer": 3, "tools": [document("add", "Adds whole numbers.", amount={"type": "integer"})]},
    {"prompt": "Go.", "answer": 3, "tools": [document("add", "Adds anything at all.", what={"type": "string"})]},
]


def environment(folder, rows=ROWS):
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {"rows": [str(folder / "rows.jsonl")], "callable": f"{FILE}:Adder", "scores": ["exact", "written"]}
    return ENV_KINDS.get("rows").model_validate({"kind": "rows", **spec})


def played(env, row, turns):
    """The trajectory of a script, and its prompt."""
    chat = stand_in("hermes", env.tools)
    lines = [turn if isinstance(turn, str) else chat.write_calls([ToolCall(*call) for call in turn]) for turn in turns]
    policy = ScriptedPolicy(chat.tokenizer, [f"{line}<|im_end|>" for line in lines])
    task = Task("t", (Message("user", "Go."),), 3, columns=row)

    async def run():
        async with WorldPool(env, seed=0) as worlds, Executor(worlds.declarations, seed=0) as tools:
            limits, sampling = RolloutLimits(9, 1 << 16), Sampling(stop_token_ids=chat.stop_token_ids)
            return await play(Rollout("t", task, 0, 0), Setting(policy, chat, tools, limits, sampling, worlds=worlds))

    trajectory = asyncio.run(run())
    return trajectory, chat.decode(trajectory.tokens[: trajectory.turns[0].start])


def test_a_trajectory_sees_the_documents_of_its_row_alone(tmp_path):
    env = environment(tmp_path)
    for row, seen, unseen in ((ROWS[0], "whole numbers", "anything"), (ROWS[1], "anything", "whole numbers")):
        _, prompt = played(env, row, ["I give up."])
        assert seen in prompt and unseen not in prompt


def test_a_call_reaches_the_class_whatever_its_arguments(tmp_path):
    trajectory, _ = played(environment(tmp_path), ROWS[0], [[("add", {"amount": 3, "other": [1]})], "Done."])
    assert [record.result.text for record in trajectory.calls] == ["add: 3"]
    assert trajectory.world.scores == {"exact": 1.0, "written": 1.0}


def test_the_class_judges_calls_that_no_tool_could_take(tmp_path):
    trajectory, _ = played(environment(tmp_path), ROWS[0], [[("unheard_of", {})], "Done."])
    assert trajectory.calls[0].result.outcome is Outcome.UNKNOWN_TOOL
    assert trajectory.world.scores["written"] == 1.0


def test_words_of_the_class_answer_a_turn_without_calls(tmp_path):
    trajectory, _ = played(environment(tmp_path), ROWS[0], ["what?", "Done."])
    assert [turn.world.reply for turn in trajectory.turns] == ["Call a tool.", None]


def test_rows_without_documents_are_named(tmp_path):
    assert environment(tmp_path).missing_columns(["prompt"]) == ["tools"]
