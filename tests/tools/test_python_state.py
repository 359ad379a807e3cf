"""Classes as tools: instances that keep state for a trajectory or for the run."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest

from rlf.core import RlfError
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, ToolCall, ToolResult

NOTE = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}


def notes(declare: Any, function: str = "Notes", **target: Any) -> ToolDeclaration:
    return declare(function, NOTE, name="notes", target=target)  # type: ignore[no-any-return]


def short(declare: Any) -> ToolDeclaration:
    return declare("Notes", NOTE, name="notes", limits={"timeout_s": 0.3})  # type: ignore[no-any-return]


async def note(executor: Executor, trajectory_id: str, text: str) -> ToolResult:
    return await executor.invoke(ToolCall("notes", {"note": text}), trajectory_id=trajectory_id)


def test_each_trajectory_has_an_instance_of_its_own_until_it_ends(declare: Any, toolbox: ModuleType) -> None:
    async def story() -> None:
        async with Executor([notes(declare)]) as executor:
            assert (await note(executor, "a", "x")).text == "x"
            assert (await note(executor, "b", "y")).text == "y"
            assert (await note(executor, "a", "z")).text == "x z"
            await executor.end_trajectory("a")
            assert toolbox.CALLS == ["made", "opened", "made", "opened", "closed with 2"]
            assert (await note(executor, "a", "new")).text == "new"

    asyncio.run(story())
    assert sorted(toolbox.CALLS[5:]) == ["closed with 1", "closed with 1", "made", "opened"]


def test_parallel_calls_of_a_trajectory_open_one_instance_and_run_one_by_one(declare: Any, toolbox: ModuleType) -> None:
    async def story() -> list[str]:
        async with Executor([notes(declare, "SlowNotes")]) as executor:
            results = await asyncio.gather(*(note(executor, "a", str(n)) for n in range(8)))
            return [result.text for result in results]

    assert asyncio.run(story()) == [f"{n} on True" for n in range(1, 9)]
    assert toolbox.CALLS == ["closed with 8"]


def test_with_state_run_all_trajectories_share_an_instance(declare: Any, toolbox: ModuleType) -> None:
    async def story() -> str:
        async with Executor([notes(declare, state="run")]) as executor:
            await note(executor, "a", "x")
            await executor.end_trajectory("a")
            return (await note(executor, "b", "y")).text

    assert asyncio.run(story()) == "x y"
    assert toolbox.CALLS == ["made", "opened", "closed with 2"]


def test_a_class_that_cannot_be_made_is_infrastructure(declare: Any) -> None:
    async def story() -> ToolResult:
        async with Executor([declare("Broken", {"type": "object"})]) as executor:
            return await executor.invoke(ToolCall("Broken", {}), trajectory_id="t")

    result = asyncio.run(story())
    assert result.outcome is Outcome.INFRA
    assert "Broken cannot be opened: RuntimeError: no licence" in result.text


@pytest.mark.parametrize(
    ("target", "words"), [({"isolation": "process"}, "takes functions"), ({"isolation": "thread"}, "isolation: auto")]
)
def test_a_class_that_cannot_run_as_declared_is_refused(declare: Any, target: dict[str, Any], words: str) -> None:
    with pytest.raises(RlfError, match=words):
        asyncio.run(Executor([notes(declare, **target)]).__aenter__())


def test_an_instance_that_cannot_be_closed_is_reported_and_keeps_no_run_from_ending(
    declare: Any, toolbox: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(self: object) -> None:
        raise SystemExit("not now")

    async def hang(self: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("rlf.tools.python.instances._CLOSE_S", 0.1)

    async def story() -> None:
        async with Executor([short(declare)]) as executor:
            await note(executor, "a", "x")
            await note(executor, "b", "x")
            await executor.end_trajectory("a")

    for broken in (refuse, hang):
        monkeypatch.setattr(toolbox.Notes, "close", broken)
        asyncio.run(story())
    assert "end of trajectory a: SystemExit: not now" in caplog.text
    assert "closing a Notes: SystemExit: not now" in caplog.text
    assert "closing a Notes: TimeoutError" in caplog.text
