"""Level `remote`, against a small real server of SandboxFusion's protocol that runs what it is sent in the sandbox."""

import asyncio
import base64
import json

import pytest
from aiohttp import web

from rlf.core import RlfError
from rlf.sandbox import LevelChoice, Request, Sandbox, SandboxLimits, SandboxOutcome, SandboxSpec, open_sandbox
from tests.endpoints.servers import answer, raw_keeping

STATUS = {SandboxOutcome.OK: "Finished", SandboxOutcome.TIMEOUT: "TimeLimitExceeded"}


def service(sandbox, seen):
    """The protocol's answers, from executions of a local sandbox."""

    async def run_code(request):
        asked = await request.json()
        seen.append(asked)
        if asked["code"] == "down":
            return web.Response(status=503)
        if asked["code"] == "broken":
            return web.json_response({"status": "SandboxError", "message": "no room"})
        if asked["code"] == "garbage":
            return web.Response(text="{")
        files = {name: base64.b64decode(content) for name, content in asked["files"].items()}
        limits = SandboxLimits(wall_s=asked["run_timeout"])
        ran = await sandbox.run(Request(asked["code"], asked["stdin"], files, tuple(asked["fetch_files"]), limits))
        result = {
            "status": STATUS.get(ran.outcome, "Error"),
            "execution_time": ran.usage.wall_s,
            "return_code": 0 if ran.outcome is SandboxOutcome.OK else 1,
            "stdout": ran.stdout,
            "stderr": ran.error or ran.stderr,
        }
        fetched = {name: base64.b64encode(content).decode() for name, content in ran.files.items()}
        status = "Success" if ran.outcome is SandboxOutcome.OK else "Failed"
        return web.json_response(
            {"status": status, "message": "", "compile_result": None, "run_result": result, "files": fetched}
        )

    application = web.Application()
    application.router.add_post("/run_code", run_code)
    return application


def executions(*requests):
    """What a remote sandbox gives for each, and what the service was asked."""

    async def main():
        seen = []
        async with Sandbox(SandboxSpec(level=LevelChoice.PROCESS, allow_unsafe=True)) as local:
            runner = web.AppRunner(service(local, seen))
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            spec = SandboxSpec(level=LevelChoice.REMOTE, url=url, limits=SandboxLimits(wall_s=1.5, output_bytes=1000))
            try:
                async with open_sandbox(spec) as remote:
                    return [await remote.run(request) for request in requests], seen
            finally:
                await runner.cleanup()

    return asyncio.run(main())


def test_output_files_and_errors_come_back():
    good = Request("print(input())\nopen('b', 'wb').write(open('a', 'rb').read() * 2)", "hi", {"a": b"\0"}, ("b",))
    (ran, raised, hung), seen = executions(good, Request("1 / 0"), Request("while True: pass"))
    assert (ran.outcome, ran.stdout, dict(ran.files), ran.level) == (
        SandboxOutcome.OK,
        "hi\n",
        {"b": b"\0\0"},
        "remote",
    )
    assert (raised.outcome, raised.error) == (SandboxOutcome.ERROR, "ZeroDivisionError: division by zero")
    assert hung.outcome is SandboxOutcome.TIMEOUT
    assert {"code", "language", "compile_timeout", "run_timeout", "stdin", "files", "fetch_files"} <= set(seen[0])


def test_what_the_service_says_unasked_is_nobodys_result():
    def answered(words):
        run = {"status": "Finished", "execution_time": 0.1, "return_code": 0, "stdout": words, "stderr": ""}
        said = {"status": "Success", "message": "", "compile_result": None, "run_result": run, "files": {}}
        return answer("200 OK", json.dumps(said).encode(), "Content-Type: application/json")

    async def reply(seen, writer):
        writer.write(answered(json.loads(seen.body)["code"]))
        await writer.drain()
        writer.write(answered("stray"))

    async def main():
        async with raw_keeping(reply) as (url, raw), open_sandbox(SandboxSpec(level="remote", url=url)) as remote:
            for number in range(6):
                ran = await remote.run(Request(str(number)))
                assert (ran.outcome, ran.stdout) == (SandboxOutcome.OK, str(number))
                await asyncio.sleep(0.01)
            assert len(raw.seen) == 6

    asyncio.run(main())


def test_output_beyond_what_is_kept_is_left_out():
    [ran], _ = executions(Request("print('x' * 1500)"))
    assert (ran.outcome, len(ran.stdout)) == (SandboxOutcome.OUTPUT_LIMIT, 1000)


@pytest.mark.parametrize("source", ["down", "broken", "garbage"])
def test_a_service_that_fails_is_infrastructures_fault_and_is_asked_once(source):
    [ran], seen = executions(Request(source))
    assert ran.outcome is SandboxOutcome.INFRA and "/run_code" in ran.error
    assert len(seen) == 1


def test_a_service_that_is_not_there_is_infrastructures_fault():
    async def main():
        async with open_sandbox(SandboxSpec(level=LevelChoice.REMOTE, url="http://127.0.0.1:9")) as remote:
            with pytest.raises(RlfError, match="keeps no sessions"):
                await remote.run(Request("1"), session="a")
            return await remote.run(Request("1"))

    assert asyncio.run(main()).outcome is SandboxOutcome.INFRA


@pytest.mark.parametrize("keys", [{"level": "remote"}, {"url": "http://x"}])
def test_url_and_level_remote_go_together(keys):
    with pytest.raises(ValueError, match="go together"):
        SandboxSpec.model_validate(keys)


@pytest.mark.parametrize("url", ["http://", "http:///run", "http://host:0", "http://host:66000", "ftp://host"])
def test_an_address_that_cannot_exist_is_refused_before_any_call(url):
    with pytest.raises(ValueError, match="url"):
        SandboxSpec.model_validate({"level": "remote", "url": url})
