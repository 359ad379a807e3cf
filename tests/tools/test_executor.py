"""Calls from name to result: look-up, validation, retries, budget."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlf.core import RlfError
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.execution import gate
from rlf.tools.execution.open_tool import FIRST_PAUSE_S, backoff_s
from rlf.types import Outcome, ToolCall, ToolResult

HOW = {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]}


async def invoke_all(declaration: ToolDeclaration, arguments: list[dict[str, Any]]) -> list[ToolResult]:
    async with Executor([declaration]) as executor:
        calls = [ToolCall(declaration.name, of) for of in arguments]
        return await asyncio.gather(*(executor.invoke(call, trajectory_id="t") for call in calls))


@pytest.mark.parametrize(
    ("function", "isolation", "ran"),
    [("echo", "auto", "inline"), ("echo_sync", "auto", "thread"), ("echo_sync", "inline", "inline")],
)
def test_a_call_returns_what_the_function_returns(
    declare: Any, call_once: Any, function: str, isolation: str, ran: str
) -> None:
    result = call_once(declare(function, isolation=isolation), query="héllo")
    assert (result.outcome, result.text, result.isolation) == (Outcome.OK, "héllo", ran)
    assert result.size_bytes == 6
    assert [attempt.outcome for attempt in result.attempts] == [Outcome.OK]
    assert 0 < result.attempts[0].run_s <= result.run_s


def test_an_unknown_tool_is_answered_with_the_nearest_name(declare: Any) -> None:
    async def main() -> ToolResult:
        async with Executor([declare("echo")]) as executor:
            return await executor.invoke(ToolCall("ecco", {}), trajectory_id="t")

    result = asyncio.run(main())
    assert result.outcome is Outcome.UNKNOWN_TOOL
    assert result.text == "error: no tool 'ecco'; did you mean 'echo'? (known: echo)"
    assert result.attempts == ()


def test_two_tools_of_one_name_are_refused(declare: Any) -> None:
    with pytest.raises(RlfError, match="declared twice"):
        Executor([declare("echo"), declare("echo")])


def test_descriptions_keep_the_order_of_the_spec(declare: Any) -> None:
    executor = Executor([declare("hang"), declare("echo")])
    assert [description.name for description in executor.descriptions] == ["hang", "echo"]
    assert executor.descriptions[1].as_openai()["function"]["parameters"]["required"] == ["query"]


def test_wrong_arguments_reach_the_model_and_not_the_tool(declare: Any, call_once: Any, toolbox: ModuleType) -> None:
    result = call_once(declare("record"), quer="x")
    assert result.outcome is Outcome.INVALID_ARGUMENTS
    assert result.text == (
        "error: invalid arguments for record: unknown 'quer'; did you mean 'query'?; missing 'query'. "
        "Expected: query (string, required)"
    )
    assert toolbox.CALLS == []


def test_only_an_idempotent_tool_is_tried_again(declare: Any, call_once: Any, toolbox: ModuleType) -> None:
    once = call_once(declare("flaky"), query="x")
    assert (once.outcome, once.text) == (Outcome.UNKNOWN, "error: ConnectionError: try again")
    assert len(toolbox.CALLS) == 1
    toolbox.CALLS.clear()
    again = call_once(declare("flaky", idempotent=True, limits={"retries": 2}), query="x")
    assert (again.outcome, again.text) == (Outcome.OK, "third time")
    assert [attempt.outcome for attempt in again.attempts] == [Outcome.UNKNOWN, Outcome.UNKNOWN, Outcome.OK]
    assert again.attempts[0].error == "ConnectionError: try again"


def test_a_host_that_asks_for_time_is_given_it_as_far_as_the_deadline_allows(
    declare: Any, call_once: Any, toolbox: ModuleType
) -> None:
    tool = declare("later", idempotent=True, limits={"retries": 1, "timeout_s": 2})
    waited = call_once(tool, query="0.3")
    assert [attempt.outcome for attempt in waited.attempts] == [Outcome.RATE_LIMITED] * 2
    assert 0.3 <= waited.run_s < 1.5
    absurd = call_once(tool, query="86400")
    assert (absurd.outcome, len(absurd.attempts)) == (Outcome.RATE_LIMITED, 1)
    assert absurd.run_s < 1


def test_a_call_that_may_have_been_delivered_is_made_again_only_where_that_does_no_harm(
    declare: Any, call_once: Any, toolbox: ModuleType
) -> None:
    once = call_once(declare("unsure"), query="x")
    assert (once.outcome, toolbox.CALLS) == (Outcome.UNKNOWN, ["x"])
    toolbox.CALLS.clear()
    again = call_once(declare("unsure", idempotent=True, limits={"retries": 2}), query="x")
    assert (again.outcome, toolbox.CALLS) == (Outcome.UNKNOWN, ["x"] * 3)


def test_every_attempt_counts_for_the_rate(declare: Any, call_once: Any, toolbox: ModuleType) -> None:
    limits = {"retries": 3, "timeout_s": 5, "rate": {"per_second": 2}}
    result = call_once(declare("fail", HOW, idempotent=True, limits=limits), how="value")
    assert len(result.attempts) == 4
    assert result.run_s >= 1.0  # four starts at two a second


def test_retries_end_at_their_number(declare: Any, call_once: Any) -> None:
    result = call_once(declare("fail", HOW, idempotent=True, limits={"retries": 2}), how="value")
    assert result.outcome is Outcome.TOOL_ERROR
    assert len(result.attempts) == 3


def test_retries_end_at_the_deadline(declare: Any, call_once: Any) -> None:
    limits = {"retries": 1000, "timeout_s": 0.2}
    result = call_once(declare("fail", HOW, idempotent=True, limits=limits), how="value")
    assert result.outcome is Outcome.TOOL_ERROR
    assert 1 < len(result.attempts) < 1000


def test_pauses_double_are_jittered_and_follow_from_the_seed() -> None:
    pauses = [backoff_s(number, seed) for seed in range(50) for number in (1, 2, 3)]
    assert pauses == [backoff_s(number, seed) for seed in range(50) for number in (1, 2, 3)]
    for number in (1, 2, 3):
        bound = FIRST_PAUSE_S * 2 ** (number - 1)
        drawn = [backoff_s(number, seed) for seed in range(50)]
        assert 0 <= min(drawn) < bound / 4 < bound * 3 / 4 < max(drawn) <= bound


def test_calls_beyond_the_limit_wait_their_turn(declare: Any) -> None:
    tool = declare("wait_200_ms", limits={"max_concurrency": 2})
    results = asyncio.run(invoke_all(tool, [{"query": str(number)} for number in range(4)]))
    waits = sorted(result.queue_s for result in results)
    assert waits[1] < 0.19 < waits[2]


def test_calls_beyond_the_limit_of_all_tools_wait_their_turn(declare: Any) -> None:
    async def main() -> list[float]:
        async with Executor([declare("wait_200_ms", limits={"max_concurrency": 2})], max_concurrency=1) as executor:
            calls = [ToolCall("wait_200_ms", {"query": str(number)}) for number in range(2)]
            results = await asyncio.gather(*(executor.invoke(call, trajectory_id="t") for call in calls))
            return sorted(result.queue_s for result in results)

    first, second = asyncio.run(main())
    assert second > max(0.19, first)


def test_a_wait_for_a_permit_does_not_use_up_the_deadline(declare: Any) -> None:
    tool = declare("wait_200_ms", limits={"max_concurrency": 1, "timeout_s": 0.3})
    results = asyncio.run(invoke_all(tool, [{"query": str(number)} for number in range(3)]))
    assert {result.outcome for result in results} == {Outcome.OK}


@pytest.mark.parametrize("function", ["meet", "meet_sync"])
def test_128_calls_run_at_once(declare: Any, function: str) -> None:
    tool = declare(function, limits={"max_concurrency": 128, "timeout_s": 30})
    results = asyncio.run(invoke_all(tool, [{"query": str(number)} for number in range(128)]))
    assert {result.text for result in results} == {"done"}


def test_a_tool_that_spoils_its_arguments_spoils_its_own_copy(declare: Any) -> None:
    items = {"items": [1, 2, 3]}
    schema = {"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]}
    asyncio.run(invoke_all(declare("spoil", schema), [items]))
    assert items == {"items": [1, 2, 3]}


def test_results_say_how_calls_ended(declare: Any) -> None:
    async def main() -> list[tuple[Outcome, int, bool, bool]]:
        echo = declare("echo", cache={"scope": "run"}, limits={"max_output_chars": 100})
        tools = [declare("flaky", idempotent=True, limits={"retries": 2}), echo]
        said: list[tuple[str, dict[str, Any]]] = [("flaky", {"query": ""}), *[("echo", {"query": "a"})] * 2]
        said += [("echo", {"query": "a" * 200}), ("echo", {}), ("nobody", {})]
        async with Executor(tools) as executor:
            ended = [await executor.invoke(ToolCall(name, of), trajectory_id="t") for name, of in said]
        return [(result.outcome, len(result.attempts), result.cached, result.truncated) for result in ended]

    assert asyncio.run(main()) == [
        (Outcome.OK, 3, False, False),
        (Outcome.OK, 1, False, False),
        (Outcome.OK, 0, True, False),
        (Outcome.OK, 1, False, True),
        (Outcome.INVALID_ARGUMENTS, 0, False, False),
        (Outcome.UNKNOWN_TOOL, 0, False, False),
    ]


def test_opening_and_closing_say_how_many_tools_there_are(declare: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Executor([declare("echo"), declare("hang")]):
            pass

    with caplog.at_level(logging.INFO, "rlf.tools.execution.executor"):
        asyncio.run(main())
    assert caplog.messages == ["opened 2 tools", "closed 2 tools"]


def test_tools_opened_before_a_failure_are_closed(declare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlf.tools.execution.open_tool import OpenTool
    from rlf.tools.kinds.python import PythonTool

    closed: list[str] = []

    async def close(self: OpenTool) -> None:
        closed.append(self.declaration.name)

    first, second = declare("echo"), declare("hang")
    real = PythonTool.open

    async def open_one(self: PythonTool, limits: Any) -> Any:
        if self is second.target:
            raise RlfError("cannot be opened")
        return await real(self, limits)

    monkeypatch.setattr(OpenTool, "close", close)
    monkeypatch.setattr(PythonTool, "open", open_one)
    with pytest.raises(RlfError, match="cannot be opened"):
        asyncio.run(Executor([first, second]).__aenter__())
    assert closed == ["echo"]


def test_the_model_cannot_call_a_hidden_tool_and_reward_terms_can(declare: Any) -> None:
    async def story() -> tuple[Outcome, str, str, str]:
        async with Executor([declare("echo"), declare("echo", name="gold", hidden=True)]) as executor:
            call = ToolCall("gold", {"query": "x"})
            refused = await executor.invoke(call, trajectory_id="t")
            run = await executor.for_rewards.invoke(call, trajectory_id="t")
            return refused.outcome, refused.text, run.text, " ".join(tool.name for tool in executor.descriptions)

    assert asyncio.run(story()) == (Outcome.UNKNOWN_TOOL, "error: no tool 'gold' (known: echo)", "x", "echo")


class Job:
    """Where the calls of tools that a whole job shares are made: one at a time takes long enough to be seen."""

    descriptions = ()

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ended: list[str] = []
        self.num_running = self.most_running = 0

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        self.calls.append(f"{trajectory_id}: {call.name}")
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        await asyncio.sleep(0.01)
        self.num_running -= 1
        return ToolResult(Outcome.OK, "from the job")

    async def end_trajectory(self, trajectory_id: str) -> None:
        self.ended.append(trajectory_id)


def test_calls_of_a_tool_of_the_job_are_made_there_and_others_here(declare: Any) -> None:
    job, of_job = Job(), {"limits": {"scope": "job"}}

    async def main() -> list[str]:
        tools = [declare("echo"), declare("record", **of_job), declare("hang", name="gold", hidden=True, **of_job)]
        async with Executor(tools, elsewhere=job) as executor:
            calls = [ToolCall(name, {"query": "here"}) for name in ("echo", "record", "gold", "nobody")]
            results = [await executor.invoke(call, trajectory_id="t") for call in calls]
            results.append(await executor.for_rewards.invoke(calls[2], trajectory_id="t"))
            await executor.end_trajectory("t")
            return [result.text for result in results]

    known = "(known: echo, record)"
    refused = [f"error: no tool 'gold' {known}", f"error: no tool 'nobody' {known}"]
    assert asyncio.run(main()) == ["here", "from the job", *refused, "from the job"]
    assert (job.calls, job.ended) == (["t: record", "t: gold"], ["t"])


def test_a_job_without_tools_of_its_own_is_not_asked_to_end_trajectories(declare: Any) -> None:
    job = Job()

    async def main() -> None:
        async with Executor([declare("echo")], elsewhere=job) as executor:
            await executor.end_trajectory("t")

    asyncio.run(main())
    assert job.ended == []


@pytest.mark.parametrize("most", [None, 2])
def test_calls_of_a_tool_of_the_job_count_among_those_that_run_at_once(declare: Any, most: int | None) -> None:
    job = Job()

    async def main() -> None:
        async with Executor([declare("echo", limits={"scope": "job"})], max_concurrency=most, elsewhere=job) as one:
            calls = [one.invoke(ToolCall("echo", {"query": ""}), trajectory_id=str(n)) for n in range(5)]
            await asyncio.gather(*calls)

    asyncio.run(main())
    assert (len(job.calls), job.most_running) == (5, most or 5)


@pytest.mark.parametrize(("room", "warnings"), [(9, []), (8, ["allows 8 tool calls at once, not 9"])])
def test_tools_that_share_permits_need_room_for_the_calls_of_one_of_them(
    declare: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, room: int, warnings: list[str]
) -> None:
    of_a_world = [declare("record", name=f"act{number}", limits={"max_concurrency": 5}) for number in range(3)]
    targets = [tool.target for tool in of_a_world]
    share = property(lambda target: any(target is one for one in targets))
    monkeypatch.setattr(type(targets[0]), "shares_permits", share)
    monkeypatch.setattr(gate, "_OPEN", Path("no/such/folder"))
    files = gate._RESERVED + room
    monkeypatch.setattr(gate.resource, "getrlimit", lambda _: (files, files))

    async def main() -> None:
        async with Executor([declare("echo", limits={"max_concurrency": 4}), *of_a_world]):
            pass

    asyncio.run(main())
    found = [record.message for record in caplog.records if "ulimit" in record.message]
    assert len(found) == len(warnings) and all(words in text for words, text in zip(warnings, found, strict=True))
