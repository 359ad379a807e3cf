"""Recorded calls played back: the same bytes, no tool touched, and a difference named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlf.core import RlfError
from rlf.tools import Executor
from rlf.tools.execution.tape import AnsweredCall, ReplayMiss, read_tape
from rlf.types import ToolCall, ToolResult


def one(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


async def ask(executor: Executor, name: str, trajectory_id: str = "t", **arguments: Any) -> ToolResult:
    return await executor.invoke(ToolCall(name, arguments), trajectory_id=trajectory_id)


async def play(executor: Executor) -> list[ToolResult]:
    """Errors, cuts, pictures, unknown tools, the same call twice with other results, two trajectories at once."""
    results = [await ask(executor, "record", query="a"), await ask(executor, "record", query="a")]
    results += await asyncio.gather(*(ask(executor, "record", f"t{n}", query="same") for n in range(3)))
    results += [await ask(executor, "echo", query="x" * 9000), await ask(executor, "picture", kind="small")]
    results += [await ask(executor, "echo"), await ask(executor, "nobody", query="x")]
    results += [await ask(executor, "structured", what="right"), await ask(executor, "echo", query="\ud800")]
    return results


def test_a_replay_gives_the_same_results_without_touching_a_tool(
    declare: Any, toolbox: ModuleType, tmp_path: Path
) -> None:
    tools = [declare("record"), declare("echo"), declare("picture", one("kind")), declare("structured", one("what"))]
    file = tmp_path / "run" / "tool_calls.jsonl"

    async def story(**keys: Any) -> list[ToolResult]:
        async with Executor(tools, **keys) as executor:
            return await play(executor)

    first = asyncio.run(story(record=file))
    num_calls = len(toolbox.CALLS)
    again = asyncio.run(story(replay=read_tape(file)))
    assert again == first
    assert len(toolbox.CALLS) == num_calls == 5
    assert (first[0].text, first[1].text) == ("a: 1", "a: 2")


def record_two(declare: Any, file: Path) -> None:
    async def story() -> None:
        async with Executor([declare("echo")], record=file) as executor:
            await ask(executor, "echo", query="a")
            await ask(executor, "echo", query="b")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("trajectory_id", "query", "words"),
    [
        ("t", "c", 'trajectory \'t\' calls echo {"query":"c"}; the recording has echo {"query":"b"} there.'),
        ("t", "a", 'trajectory \'t\' calls echo {"query":"a"} more often than the recording.'),
        ("u", "a", 'trajectory \'u\' calls echo {"query":"a"}; the recording has no call of that trajectory.'),
    ],
)
def test_a_call_that_the_recording_lacks_ends_the_run_and_names_the_difference(
    declare: Any, tmp_path: Path, trajectory_id: str, query: str, words: str
) -> None:
    file = tmp_path / "calls.jsonl"
    record_two(declare, file)

    async def story() -> None:
        async with Executor([declare("echo")], replay=read_tape(file)) as executor:
            await ask(executor, "echo", query="a")
            await ask(executor, "echo", trajectory_id, query=query)

    with pytest.raises(ReplayMiss) as caught:
        asyncio.run(story())
    assert str(caught.value).startswith(f"replay: {words} Use the spec, data and model of the recorded run, or call")
    assert caught.value.exit_code == 1


def test_a_line_cut_short_by_a_kill_is_left_out_and_a_damaged_one_is_reported(declare: Any, tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    record_two(declare, file)
    whole = file.read_text()
    file.write_text(whole[:-5])
    tape = read_tape(file)
    lines = [json.loads(line) for line in whole.splitlines()]
    assert [line["arguments"] for line in lines] == ['{"query":"a"}', '{"query":"b"}']
    assert tape.answer(AnsweredCall("t", "echo", '{"query":"a"}')).text == "a"
    with pytest.raises(ReplayMiss):
        tape.answer(AnsweredCall("t", "echo", '{"query":"b"}'))
    file.write_text("{}\n" + whole)
    with pytest.raises(RlfError, match=r"calls\.jsonl:1: not a recorded tool call"):
        read_tape(file)
    with pytest.raises(RlfError, match="cannot be read"):
        read_tape(tmp_path / "nothing.jsonl")


def test_times_of_a_replay_are_those_of_the_recording(declare: Any, tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"

    async def story(**keys: Any) -> ToolResult:
        async with Executor([declare("wait_200_ms")], **keys) as executor:
            return await ask(executor, "wait_200_ms", query="x")

    slow = asyncio.run(story(record=file))
    played = asyncio.run(story(replay=read_tape(file)))
    assert played.run_s == slow.run_s >= 0.2


def test_of_a_trajectory_that_a_resumed_run_plays_anew_the_latest_calls_count(
    declare: Any, toolbox: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "calls.jsonl"

    async def session(*trajectories: str) -> list[str]:
        async with Executor([declare("record")], record=file) as executor:
            return [(await ask(executor, "record", name, query="q")).text for name in trajectories]

    first = asyncio.run(session("kept", "lost"))
    file.write_text(file.read_text() + '{"session": 1, "traj')  # cut short by a kill
    again = asyncio.run(session("lost"))
    tape = read_tape(file)
    texts = [tape.answer(AnsweredCall(name, "record", '{"query":"q"}')).text for name in ("kept", "lost")]
    assert (first, again) == (["q: 1", "q: 2"], ["q: 3"])
    assert texts == ["q: 1", "q: 3"]
    with pytest.raises(ReplayMiss, match="more often"):
        tape.answer(AnsweredCall("lost", "record", '{"query":"q"}'))


def test_a_tool_that_changes_a_world_is_called_while_the_others_are_played_back(
    declare: Any, toolbox: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "calls.jsonl"
    record_two(declare, file)
    own = declare("record")
    monkeypatch.setattr(type(own.target), "is_played_back", property(lambda target: target is not own.target))

    async def story() -> list[str]:
        async with Executor([declare("echo"), own], replay=read_tape(file)) as executor:
            results = [await ask(executor, "echo", query="a"), await ask(executor, "record", query="x")]
            return [result.text for result in results]

    assert asyncio.run(story()) == ["a", "x: 1"]
    assert toolbox.CALLS == ["x"]


def test_calls_of_reward_terms_have_a_recording_of_their_own_once_there_are_any(declare: Any, tmp_path: Path) -> None:
    file = tmp_path / "reward_calls.jsonl"

    async def story(*queries: str) -> None:
        async with Executor([declare("echo")], record_rewards=file, redact=lambda text: text.replace("x", "y")) as one:
            await ask(one, "echo", query="of the policy")
            for query in queries:
                await one.for_rewards.invoke(ToolCall("echo", {"query": query}), trajectory_id="t")

    asyncio.run(story())
    assert not file.exists()
    asyncio.run(story("a", "bx"))
    tape = read_tape(file)
    texts = [tape.answer(AnsweredCall("t", "echo", f'{{"query":"{query}"}}')).text for query in ("a", "by")]
    assert texts == ["a", "by"], "what a caller strikes out of texts is in no recording"
