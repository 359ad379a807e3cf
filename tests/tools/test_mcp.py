"""Tools of MCP servers: real ones over stdio and HTTP, that behave and that break."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlf.apps.servers import messages, stdio
from rlf.apps.servers.messages import Pulse
from rlf.core import RlfError
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.mcp.listing import listing_of
from rlf.tools.mcp.server import McpServer
from rlf.types import Outcome, ToolCall, ToolResult
from tests.warm import MCP, warm_python

SERVERS = Path(__file__).parent / "mcp_servers"
KIT = str(SERVERS / "kit.py")
MARK = "RLF_TEST_SERVER"
SAY = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

Story = Callable[[Executor], Awaitable[None]]


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[str]:
    """No process that a test started is there after it."""
    mark = uuid.uuid4().hex
    yield mark
    assert left_of(mark) == []


@pytest.fixture
def rough(no_server_is_left: str, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A server of bare lines that misbehaves as told; `log.txt` tells its starts."""

    def build(mode: str = "", **keys: Any) -> dict[str, Any]:
        env = {MARK: no_server_is_left, "ROUGH_LOG": str(tmp_path / "log.txt"), **keys.pop("env", {})}
        return {"command": sys.executable, "args": [str(SERVERS / "rough.py"), mode], "env": env, **keys}

    return build


@pytest.fixture
def kit(no_server_is_left: str) -> dict[str, Any]:
    """The server of the SDK, over stdio."""
    return {"command": warm_python(*MCP), "args": [KIT], "env": {MARK: no_server_is_left}}


def processes(mark: str) -> list[int]:
    """Processes that were started with the mark in their environment and still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def left_of(mark: str) -> list[int]:
    """Marked processes that are there still when the machine has had time to end what was killed."""
    deadline = time.monotonic() + 5
    while (found := processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def declare(server: dict[str, Any], tool: str = "say", schema: dict[str, Any] = SAY, **keys: Any) -> ToolDeclaration:
    name, target = keys.pop("name", tool), {"kind": "mcp", "server": server, "tool": tool, **keys.pop("target", {})}
    mapping = {"name": name, "description": "A tool.", "inputSchema": schema, "target": target, **keys}
    return ToolDeclaration.model_validate(mapping)


def listed(server: dict[str, Any]) -> list[ToolDeclaration]:
    """Every tool and resource of a server, declared as a spec would."""
    found = []
    for entry in listing_of(McpServer.model_validate(server)).entries:
        target = {"resource": entry.resource, "tool": None} if entry.resource else {"digest": entry.digest}
        found.append(declare(server, entry.name, dict(entry.input_schema), target=target))
    return found


def during(declarations: list[ToolDeclaration], story: Story) -> None:
    async def main() -> None:
        async with Executor(declarations) as executor:
            await story(executor)

    asyncio.run(main())


async def invoke(executor: Executor, name: str, trajectory_id: str = "t", **arguments: Any) -> ToolResult:
    return await executor.invoke(ToolCall(name, arguments), trajectory_id=trajectory_id)


async def timed(call: Awaitable[ToolResult]) -> tuple[ToolResult, float]:
    started = time.perf_counter()
    return await call, time.perf_counter() - started


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - another process decides, and can set no event
            await asyncio.sleep(0.02)


def log_of(tmp_path: Path) -> list[str]:
    file = tmp_path / "log.txt"
    return file.read_text().splitlines() if file.exists() else []


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Urls of the SDK's server, each started once; `served_log()` tells what was cancelled there."""
    running: dict[str, tuple[subprocess.Popen[bytes], dict[str, Any]]] = {}

    def start(transport: str) -> dict[str, Any]:
        if transport not in running:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            command = [warm_python(*MCP), KIT, transport, str(port)]
            env = {**os.environ, "KIT_LOG": str(served_log(tmp_path_factory))}
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=env)
            path = {"http": "mcp", "sse": "sse"}[transport]
            running[transport] = process, {"url": f"http://127.0.0.1:{port}/{path}", "type": transport}
            wait_until_it_listens(port)
        return running[transport][1]

    yield start
    for process, _ in running.values():
        process.kill()
        process.wait()


def served_log(folders: pytest.TempPathFactory) -> Path:
    return folders.getbasetemp() / "served.log"


def wait_until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on {port}")


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
def test_a_server_answers_over_every_transport_and_its_session_is_logged(
    transport: str, kit: dict[str, Any], served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rlf.apps.servers.connection")
    server = kit if transport == "stdio" else served(transport)

    async def story(executor: Executor) -> None:
        echo = await invoke(executor, "echo", text="ab", times=2)
        assert (echo.outcome, echo.text, echo.structured) == (Outcome.OK, "abab", {"result": "abab"})
        assert echo.isolation == ("process" if transport == "stdio" else "remote")
        weather = await invoke(executor, "weather", town="Rome")
        assert weather.structured == {"degrees": 21.5}
        refused = await invoke(executor, "refuse")
        assert (refused.outcome, refused.text) == (Outcome.TOOL_ERROR, "error: not today")
        picture = await invoke(executor, "picture")
        assert [image.mime_type for image in picture.images] == ["image/png"]
        assert picture.images[0].data.startswith(b"\x89PNG")
        assert picture.text.startswith("one pixel")
        page = await invoke(executor, "docs", page="a b/c")
        assert (page.outcome, page.text) == (Outcome.OK, "page a b/c")
        assert (await invoke(executor, "about")).text == "a kit"

    during(listed(server), story)
    first, *_, last = (record.getMessage() for record in caplog.records)
    assert first.endswith(" begins") and re.search(r" done: [1-9]\d* calls answered, \d+\.\d s: closed$", last)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_result_over_the_bound_is_refused_and_the_session_goes_on(
    transport: str, kit: dict[str, Any], served: Any
) -> None:
    server = kit if transport == "stdio" else served(transport)

    async def story(executor: Executor) -> None:
        large = await invoke(executor, "large", num_bytes=20_000_000)
        assert large.outcome is Outcome.OUTPUT_REJECTED
        assert "16" in large.text
        assert (await invoke(executor, "echo", text="on")).text == "on"

    during(listed(server), story)


def test_tools_of_one_server_share_its_process_and_trajectories_keep_to_one_session(kit: dict[str, Any]) -> None:
    server = {**kit, "sessions": 2}
    twins = [declare(server, "whoami", {"type": "object"}, name=name) for name in ("one", "other")]

    async def story(executor: Executor) -> None:
        pids = {
            trajectory: {(await invoke(executor, name, trajectory)).text for name in ("one", "other") for _ in range(2)}
            for trajectory in ("a", "b", "c", "d")
        }
        assert all(len(of_one) == 1 for of_one in pids.values())
        assert len(set.union(*pids.values())) == 2
        await executor.end_trajectory("a")

    during(twins, story)


def test_a_server_that_dies_in_a_call_fails_that_call_at_once_and_is_started_again(rough: Any, tmp_path: Path) -> None:
    async def story(executor: Executor) -> None:
        (died, took_s), other = await asyncio.gather(
            timed(invoke(executor, "mortal", text="x")), invoke(executor, "say", text="other")
        )
        assert died.outcome is Outcome.UNKNOWN
        assert died.text == "error: the server ended with exit code 9: out of memory, during the call"
        assert took_s < 1
        assert other.text == "other"
        again = await invoke(executor, "mortal", text="x")
        assert again.outcome is Outcome.UNKNOWN
        assert len(log_of(tmp_path)) >= 2 + 2  # both servers, and one of them again (lists are read first)

    during([declare(rough("die"), name="mortal"), declare(rough())], story)


def test_a_server_that_keeps_dying_is_started_ever_more_rarely(rough: Any, tmp_path: Path) -> None:
    async def story(executor: Executor) -> None:
        deadline, slowest_s = time.monotonic() + 3, 0.0
        outcomes = set()
        while time.monotonic() < deadline:
            result, took_s = await timed(invoke(executor, "say", text="x"))
            outcomes.add(result.outcome)
            slowest_s = max(slowest_s, took_s)
            await asyncio.sleep(0.01)
        assert Outcome.UNREACHABLE in outcomes
        assert slowest_s < 5
        assert len(log_of(tmp_path)) <= 8  # listed, opened, and after 0, 0.1, 0.2, 0.4, 0.8 and 1.6 s

    during([declare(rough("die"), limits={"breaker": None})], story)


def test_a_server_that_ends_at_its_start_is_reported_with_its_last_words(rough: Any) -> None:
    started = time.monotonic()
    with pytest.raises(RlfError, match=r"ended with exit code 1: no such database\. Run the command by hand"):
        during([declare(rough("refuse"))], _nothing)
    assert time.monotonic() - started < 8  # long before the time that a start has


def test_a_program_that_is_not_there_is_reported() -> None:
    with pytest.raises(RlfError, match="no program 'no-such-server' on PATH"):
        during([declare({"command": "no-such-server"})], _nothing)


def test_an_address_where_nobody_listens_is_reported() -> None:
    with pytest.raises(RlfError, match=r"http://127.0.0.1:9/mcp: no connection: .*Check the address"):
        during([declare({"url": "http://127.0.0.1:9/mcp"})], _nothing)


def test_fifty_slow_starts_leave_no_process(no_server_is_left: str) -> None:
    server = McpServer.model_validate(
        {
            "command": "sh",
            "args": ["-c", "sleep 60 & wait"],
            "env": {MARK: no_server_is_left},
            "sessions": 50,
            "start_timeout_s": 0.3,
        }
    )

    async def main() -> None:
        from rlf.apps.servers.connection import use_pool
        from rlf.tools.results import ToolFailure

        with pytest.raises(ToolFailure, match=r"gave no list of tools within 0\.3 s"):
            await use_pool(server).__aenter__()

    asyncio.run(main())
    assert left_of(no_server_is_left) == []


@pytest.mark.parametrize("mode", ["garbage", "flood", "huge"])
def test_what_a_server_writes_beside_its_messages_harms_nothing(rough: Any, mode: str) -> None:
    async def story(executor: Executor) -> None:
        result, took_s = await timed(invoke(executor, "say", text="fine"))
        if mode == "huge":
            assert result.outcome is Outcome.OUTPUT_REJECTED
            assert "100,000," in result.text
        else:
            assert (result.outcome, result.text) == (Outcome.OK, "fine")
        assert took_s < 20
        assert (await invoke(executor, "say", text="again")).outcome is result.outcome

    during([declare(rough(mode), limits={"timeout_s": 60})], story)


@pytest.mark.parametrize("written", [r"\n", r"{}\n", "x", r'{"jsonrpc":"2.0","id":7,"result":{}}\n', r"\xff\n"])
def test_a_server_that_writes_without_end_holds_up_nothing_and_fills_no_memory(rough: Any, written: str) -> None:
    turns, held = list[float](), list[float]()
    is_answer = "jsonrpc" in written  # to a request that nobody made: it must belong to the one under way

    async def count() -> None:
        while True:
            turns.append(time.thread_time())  # other work of the machine does not count
            held.append(memory_mb())
            await asyncio.sleep(0.01)

    async def story(executor: Executor) -> None:
        before = memory_mb()
        counting = asyncio.create_task(count())
        result, _ = await timed(invoke(executor, "say", text="fine"))
        await eventually(lambda: len(turns) > 50)
        counting.cancel()
        assert result.outcome is (Outcome.SERVICE_ERROR if is_answer else Outcome.TIMEOUT)
        assert max(held) - before < 60
        assert max(late - early for early, late in itertools.pairwise(turns)) < 0.3

    during([declare(rough(f"endless {written}"), limits={"timeout_s": 20 if is_answer else 0.7})], story)


def memory_mb() -> float:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def test_lines_are_cut_where_they_end_and_empty_ones_left_out() -> None:
    lines = messages.Cutter(messages.LINE_END, 5)
    assert [*lines.feed(b"a\n\nbc\r\n"), *lines.feed(b"de"), *lines.feed(b""), *lines.feed(b"f\n12345\n123456\nx")] == [
        b"a",
        b"bc\r",
        b"def",
        b"12345",
        messages.MessageEdges(b"123456", b"123456", 6),
    ]


def test_twenty_thousand_log_messages_before_an_answer_never_reach_the_sdk(
    rough: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def counted(line: bytes) -> Any:
        read.append(line)
        return messages_of(line)

    async def story(executor: Executor) -> None:
        assert (await invoke(executor, "say", text="fine")).text == "fine"

    messages_of = messages._parse_messages
    monkeypatch.setattr(messages, "_parse_messages", counted)
    during([declare(rough("logs"), limits={"timeout_s": 60})], story)
    assert 0 < len(read) < 20


def test_a_server_with_resources_that_lists_no_templates_is_used(rough: Any) -> None:
    async def story(executor: Executor) -> None:
        assert (await invoke(executor, "say", text="fine")).text == "fine"

    server = rough("no templates")
    assert [entry.name for entry in listing_of(McpServer.model_validate(server)).entries] == ["say", "memo"]
    during([declare(server)], story)


def test_the_start_of_a_server_is_not_the_time_of_the_call_that_waits_for_it(rough: Any, tmp_path: Path) -> None:
    async def story(executor: Executor) -> None:
        os.kill(int(log_of(tmp_path)[-1].split()[1]), signal.SIGKILL)
        await eventually(lambda: not processes(mark))
        await asyncio.sleep(0.2)  # until the end of its output is read: a call before that is sent into the pipe
        result = await invoke(executor, "say", text="fine")
        assert (result.outcome, result.text) == (Outcome.OK, "fine")
        assert result.queue_s > 1.5

    server = rough("slow start")
    mark = server["env"][MARK]
    during([declare(server, limits={"timeout_s": 1})], story)


def test_a_cancelled_call_and_one_past_its_deadline_are_cancelled_on_the_server(rough: Any, tmp_path: Path) -> None:
    async def story(executor: Executor) -> None:
        late = await invoke(executor, "say", text="x")
        assert late.outcome is Outcome.TIMEOUT
        call = asyncio.create_task(invoke(executor, "say", text="x"))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await eventually(lambda: sum(line.startswith("cancelled") for line in log_of(tmp_path)) == 2)

    during([declare(rough("hang"), limits={"timeout_s": 0.3})], story)


def test_a_call_past_its_deadline_is_cancelled_over_http(served: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    async def story(executor: Executor) -> None:
        assert (await invoke(executor, "slow", seconds=30)).outcome is Outcome.TIMEOUT
        await eventually(served_log(tmp_path_factory).exists)

    seconds = {"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]}
    during([declare(served("http"), "slow", seconds, limits={"timeout_s": 0.5})], story)


def test_a_tool_that_changes_during_a_run_is_called_no_more(kit: dict[str, Any]) -> None:
    async def story(executor: Executor) -> None:
        assert (await invoke(executor, "echo", text="x")).text == "x"
        await invoke(executor, "grow")
        deadline = time.monotonic() + 5
        while (result := await invoke(executor, "echo", text="x")).outcome is not Outcome.UNREACHABLE:
            assert time.monotonic() < deadline, result
        assert "has changed the tool 'echo'" in result.text

    during(listed(kit), story)


def test_a_tool_that_changed_since_it_was_listed_ends_the_run_at_its_start(rough: Any) -> None:
    checked = listed(rough())
    server = rough(env={"ROUGH_WORDS": "Shout it."})  # the same command, as far as a check can see
    moved = [declare(server, schema=tool.input_schema, target={"digest": tool.target.digest}) for tool in checked]
    with pytest.raises(RlfError, match=r"changed 'say' since it was listed\. Run `rlf check` again"):
        during(moved, _nothing)


def test_a_server_that_was_never_listed_holds_up_no_loop_while_it_starts(rough: Any) -> None:
    async def main() -> float:
        beats = [time.monotonic()]

        async def beat() -> None:
            while True:
                await asyncio.sleep(0.02)
                beats.append(time.monotonic())

        beating = asyncio.create_task(beat())
        async with Executor([declare(rough("slow start"))]):
            beating.cancel()
        return max(later - earlier for earlier, later in itertools.pairwise(beats))

    assert asyncio.run(main()) < 1.5  # the server takes two seconds


def test_a_schema_that_the_server_does_not_have_is_reported(rough: Any) -> None:
    schema = {"type": "object", "properties": {"txt": {"type": "string"}, "loud": {"type": "boolean"}}}
    complaints = declare(rough(), schema=schema).target.complaints(schema)
    assert complaints == [
        "inputSchema has 'txt', which the server's tool does not take; did you mean 'text'?",
        "inputSchema has 'loud', which the server's tool does not take",
        "the server's tool requires 'text'; list it under `properties` and `required`",
    ]
    assert declare(rough(), "sing").target.complaints(SAY) == ["the server has no tool 'sing' (known: say)"]


def test_a_listing_is_read_once_for_each_command_and_again_after_its_file_changes(
    rough: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "server.py"
    script.write_text((SERVERS / "rough.py").read_text())
    server = McpServer.model_validate({**rough(), "args": [str(script)]})
    for _ in range(2):
        monkeypatch.setattr("rlf.tools.mcp.listing._READ", {})  # as another process would find it
        assert listing_of(server).tool_names == ["say"]
    assert len(log_of(tmp_path)) == 1
    script.write_text(script.read_text().replace('"say"', '"shout"'))
    assert listing_of(server).tool_names == ["shout"]


def test_no_process_is_left_after_an_exception_or_ctrl_c(rough: Any, no_server_is_left: str, tmp_path: Path) -> None:
    async def story(executor: Executor) -> None:
        assert processes(no_server_is_left)
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        during([declare(rough("hang"))], story)
    assert left_of(no_server_is_left) == []
    log = tmp_path / "log.txt"
    log.unlink()
    code = (
        "import asyncio, signal\nfrom rlf.tools import Executor, ToolDeclaration\nfrom rlf.types import ToolCall\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"tool = ToolDeclaration.model_validate({declare(rough('hang')).model_dump(mode='json', by_alias=True)!r})\n"
        "async def main():\n    async with Executor([tool]) as executor:\n"
        "        print('open', flush=True)\n"
        "        await executor.invoke(ToolCall('say', {'text': 'x'}), trajectory_id='t')\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == b"open\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        process.wait(20)
    assert left_of(no_server_is_left) == []


def test_the_sdk_loads_only_with_a_session() -> None:
    code = "import sys, rlf.apps.servers.tool, rlf.tools.mcp.listing; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"mcp", "mcp_types", "httpx2", "anyio", "starlette"} & set(loaded)


async def _nothing(executor: Executor) -> None:
    raise AssertionError("it opened")


def test_a_server_whose_end_is_cut_off_is_killed_and_its_end_is_known(no_server_is_left):
    """Python warns, at the next collection, of a process of which nobody knows that it has ended."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    server = McpServer(command=sys.executable, args=("-c", deaf), env={MARK: no_server_is_left})

    async def hold() -> None:
        async with stdio.stdio_streams(server, lambda _how: None, Pulse()):
            await asyncio.sleep(60)

    async def cut_off() -> None:
        holding = asyncio.create_task(hold())
        for _ in range(2):
            await asyncio.sleep(0.3)
            holding.cancel()
        await asyncio.wait((holding,))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(cut_off())
        gc.collect()
    assert [warning for warning in caught if "still running" in str(warning.message)] == []
