"""Every kind of tool keeps its promises: deadline, cancellation, typed failures, secrets, concurrency, state, images.

A kind is tested by a file of its name in `conformance/`, which says how a tool of it is made to hang, to fail, and so
on: real servers on loopback and real processes, no stand-ins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rlf.core.redact import REDACTED
from rlf.tools import TOOL_KINDS, Executor, ToolDeclaration
from rlf.types import Image, Outcome, ToolCall, ToolResult
from tests.tools.conformance._subject import PNG, Subject

_FOLDER = Path(__file__).with_name("conformance")
_KINDS = sorted(file.stem for file in _FOLDER.glob("[!_]*.py"))
_SUBJECTS = {
    f"{kind}-{name}": make
    for kind in _KINDS
    for name, make in import_module(f"tests.tools.conformance.{kind}").SUBJECTS.items()
}
_HASTY_S = 1.0
_LATE_S = 3.0
"""By how much a loaded machine may be late."""
SECRET = "open-sesame-1001"


class Bench:
    """One tool under two declarations: with time to spare, and with little of it for two calls at once."""

    def __init__(self, runner: asyncio.Runner, executor: Executor, subject: Subject) -> None:
        self._runner, self._executor, self.subject = runner, executor, subject

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    async def call(self, text: str, name: str = "patient", trajectory_id: str = "t") -> ToolResult:
        call = ToolCall(name, {self.subject.argument: text})
        return await self._executor.invoke(call, trajectory_id=trajectory_id)

    async def end(self, *trajectory_ids: str) -> None:
        for trajectory_id in trajectory_ids:
            await self._executor.end_trajectory(trajectory_id)


@pytest.fixture(scope="module", params=_SUBJECTS)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    stack = AsyncExitStack()

    async def opened() -> tuple[Executor, Subject]:
        subject = await stack.enter_async_context(_SUBJECTS[request.param]())
        limits = {"patient": {"timeout_s": 30}, "hasty": {"timeout_s": _HASTY_S, "max_concurrency": 2}}
        tools = [_declared(name, subject, bounds) for name, bounds in limits.items()]
        return await stack.enter_async_context(Executor(tools)), subject

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setenv("CONFORMANCE_TOKEN", SECRET)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield Bench(runner, *runner.run(opened()))
        runner.run(stack.aclose())


def _declared(name: str, subject: Subject, limits: dict[str, Any]) -> ToolDeclaration:
    schema = {
        "type": "object",
        "properties": {subject.argument: {"type": "string"}},
        "required": [subject.argument],
    }
    mapping = {"name": name, "description": "Does it.", "inputSchema": schema, "target": subject.target}
    return ToolDeclaration.model_validate({**mapping, "limits": limits}, context={"folder": _FOLDER})


def test_every_kind_is_tested() -> None:
    assert [name for name in TOOL_KINDS.names() if TOOL_KINDS.get(name).__module__.startswith("rlf.")] == _KINDS


def test_calls_of_these_kinds_stay_on_this_machine_so_that_rewards_are_attacked_with_them() -> None:
    assert {name for name in _KINDS if TOOL_KINDS.get(name).is_local} == {"code", "python", "source", "sql"}


def test_a_call_that_hangs_ends_at_its_deadline_and_a_third_one_waits_for_its_turn(bench: Bench) -> None:
    async def story() -> list[ToolResult]:
        await asyncio.gather(*(bench.call(bench.subject.well, "hasty") for _ in range(2)))  # starts what they run in
        calls = [bench.call(bench.subject.hang, "hasty", f"hang-{number}") for number in range(3)]
        results = list(await asyncio.gather(*calls))
        await bench.end("hang-0", "hang-1", "hang-2")
        return results

    results = bench.run(story())
    assert [result.outcome for result in results] == [Outcome.TIMEOUT] * 3, [result.text for result in results]
    assert all(result.run_s < _HASTY_S + _LATE_S for result in results)
    *side_by_side, waited_s = sorted(result.queue_s for result in results)
    assert max(side_by_side) < _HASTY_S / 2 < waited_s


def test_a_cancelled_call_ends_at_once_and_gives_its_permit_back(bench: Bench) -> None:
    async def story() -> float:
        calls = [asyncio.ensure_future(bench.call(bench.subject.hang, "hasty", f"cut-{number}")) for number in range(2)]
        await asyncio.sleep(_HASTY_S / 4)
        started = time.perf_counter()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        took_s = time.perf_counter() - started
        assert all(call.cancelled() for call in calls)
        async with asyncio.timeout(30):
            assert (await bench.call(bench.subject.hang, "hasty", "cut-2")).outcome is Outcome.TIMEOUT
        await bench.end("cut-0", "cut-1", "cut-2")
        return took_s

    assert bench.run(story()) < _HASTY_S


def test_every_failure_has_its_outcome_and_the_next_call_is_answered(bench: Bench) -> None:
    async def story() -> dict[Outcome, ToolResult]:
        results = {outcome: await bench.call(text("sorry")) for outcome, text in bench.subject.failures.items()}
        assert (await bench.call(bench.subject.well)).outcome is Outcome.OK
        return results

    results = bench.run(story())
    assert {outcome: result.outcome for outcome, result in results.items()} == {each: each for each in results}
    assert all(result.text.startswith("error: ") for result in results.values())
    assert Outcome.TOOL_ERROR in results


def test_what_a_tool_says_in_secret_is_struck_out_of_results_and_errors(bench: Bench) -> None:
    subject = bench.subject
    texts = [subject.failures[Outcome.TOOL_ERROR](SECRET), *([subject.say(SECRET)] if subject.has_words else [])]
    results = [bench.run(bench.call(text)) for text in texts]
    assert [SECRET in repr(result) for result in results] == [False] * len(results)
    assert not subject.has_words or REDACTED in results[-1].text


def test_calls_of_one_trajectory_find_what_those_before_have_left_and_nothing_of_another(bench: Bench) -> None:
    state = bench.subject.state

    async def story() -> list[str]:
        assert state is not None
        await bench.call(state.keep, trajectory_id="one")
        found = [(await bench.call(state.recall, trajectory_id=name)).text for name in ("one", "two")]
        await bench.end("one", "two")
        return [*found, (await bench.call(state.recall, trajectory_id="one")).text]

    if state is not None:
        own, other, ended = bench.run(story())
        assert own == state.result
        assert other != state.result != ended


def test_an_image_comes_as_it_is_beside_a_line_for_models_that_see_none(bench: Bench) -> None:
    if bench.subject.image is not None:
        result = bench.run(bench.call(bench.subject.image))
        assert result.images == (Image(PNG, "image/png"),), result.text
        assert result.text == "[image 1: image/png, 2x3]"


def test_many_calls_at_once_have_each_its_own_result(bench: Bench) -> None:
    async def story() -> list[ToolResult]:
        calls = [bench.call(bench.subject.say(f"word{number}"), trajectory_id=f"m-{number}") for number in range(8)]
        results = list(await asyncio.gather(*calls))
        await bench.end(*(f"m-{number}" for number in range(8)))
        return results

    if bench.subject.has_words:
        results = bench.run(story())
        assert [f"word{number}" in result.text for number, result in enumerate(results)] == [True] * 8
