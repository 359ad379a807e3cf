"""`RemoteSandbox`: an HTTP sandbox elsewhere that speaks SandboxFusion's protocol.

One POST to `/run_code` per call. A call whose answer does not come is never sent again: it may have run. The service
keeps no sessions and has no value of the last expression.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from time import perf_counter
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from rlf.core.clocks import within
from rlf.core.errors import RlfError
from rlf.sandbox.spec import Execution, Level, Outcome, Request, SandboxLimits, SandboxSpec, Usage

_ERROR_CHARS = 500
_GRACE_S = 10.0
"""Time beside the call's own for the service to begin and to answer."""


class _RunResult(BaseModel):
    """The service's result of the program; keys that rlf does not read are left."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: str
    """`Finished`, `Error` or `TimeLimitExceeded`."""
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class _Response(BaseModel):
    """The service's answer."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: str
    """`Success`, `Failed` or `SandboxError`."""
    message: str = ""
    run_result: _RunResult | None = None
    files: dict[str, str] = {}
    """Content in base64 by name."""


class RemoteSandbox:
    """Runs Python at a service: `async with RemoteSandbox(spec) as sandbox`."""

    level = Level.REMOTE

    def __init__(self, spec: SandboxSpec) -> None:
        assert spec.url is not None, "level remote without a url"
        self._url = spec.url.rstrip("/") + "/run_code"
        self._limits = spec.limits

    async def __aenter__(self) -> Self:
        """Opens a connection pool; the service is first asked at the first call."""
        from rlf.core.connections import CleanConnector, open_session

        self._client = open_session(CleanConnector())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def run(self, request: Request, *, session: str | None = None) -> Execution:
        """Runs Python once. Raises RlfError for a session, and for a program beside its test."""
        import aiohttp

        if session is not None:
            raise RlfError("sandbox: level `remote` keeps no sessions; write `session: false`")
        if request.program is not None:
            raise RlfError("sandbox: level `remote` runs one process a call; a program and its test need two")
        limits = request.limits or self._limits
        started = perf_counter()
        try:
            response = _Response.model_validate_json(await self._post_request(request, limits))
            execution = _make_execution(response, limits)
        except (TimeoutError, OSError, aiohttp.ClientError, ValueError) as fault:
            error = f"{self._url}: {type(fault).__name__}: {fault}"
            execution = Execution(Outcome.INFRA, error=error[:_ERROR_CHARS], level=Level.REMOTE)
        return replace(execution, usage=Usage(wall_s=perf_counter() - started))

    async def end_session(self, session: str) -> None:
        """Holds nothing."""

    async def _post_request(self, request: Request, limits: SandboxLimits) -> bytes:
        """The answer's body. Raises what `run` reports as an infrastructure failure."""
        max_bytes = 2 * (limits.output_bytes + (limits.disk_mb << 20))
        body = bytearray()
        with within(limits.wall_s + _GRACE_S):
            async with self._client.post(self._url, json=_make_body(request, limits)) as answer:
                if answer.status != 200:
                    raise ValueError(f"status {answer.status}")
                async for part in answer.content.iter_chunked(1 << 16):
                    body += part
                    if len(body) > max_bytes:
                        raise ValueError(f"an answer of more than {max_bytes} bytes")
        return bytes(body)


def _make_body(request: Request, limits: SandboxLimits) -> dict[str, Any]:
    return {
        "code": request.source,
        "language": "python",
        "compile_timeout": limits.wall_s,
        "run_timeout": limits.wall_s,
        "memory_limit_MB": limits.memory_mb,
        "stdin": request.stdin,
        "files": {name: base64.b64encode(content).decode() for name, content in request.files.items()},
        "fetch_files": list(request.fetch),
    }


def _make_execution(response: _Response, limits: SandboxLimits) -> Execution:
    """The execution that the service answers with. Raises ValueError where it says that the service itself failed."""
    ran = response.run_result
    if response.status == "SandboxError" or ran is None:
        raise ValueError(f"{response.status}: {response.message}")
    files = {name: base64.b64decode(content, validate=True) for name, content in response.files.items()}
    stdout, stderr = (
        (text or "").encode()[: limits.output_bytes].decode(errors="ignore") for text in (ran.stdout, ran.stderr)
    )
    outcome, error = _read_outcome(ran, limits)
    if outcome is Outcome.OK and len(ran.stdout or "") + len(ran.stderr or "") > limits.output_bytes:
        outcome, error = Outcome.OUTPUT_LIMIT, f"only the first {limits.output_bytes} bytes of output were kept"
    return Execution(outcome, stdout, stderr, error=error, files=files, level=Level.REMOTE)


def _read_outcome(ran: _RunResult, limits: SandboxLimits) -> tuple[Outcome, str | None]:
    if ran.status == "TimeLimitExceeded":
        return Outcome.TIMEOUT, f"not finished within {limits.wall_s:g} s"
    if ran.status == "Finished" and ran.return_code == 0:
        return Outcome.OK, None
    last = (ran.stderr or "").strip().rpartition("\n")[2]
    error = last or f"the program left with code {ran.return_code}"
    return (Outcome.MEMORY if last.startswith("MemoryError") else Outcome.ERROR), error
