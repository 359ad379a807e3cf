"""`rlf mcp` to FastMCP's client, in an environment of its own: from an empty folder to a compared pair of runs.

`python -m venv V && V/bin/pip install fastmcp && V/bin/python benchmarks/mcp_client.py RLF FOLDER`: the program `rlf`,
and an empty folder. Prints what each call returned; ends with an error where one did not return what it should.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found]  # not in rlf's environment
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]

SPEC = {"specs": ["specs/mine.yaml"]}
SMALL = [
    "train.steps=1",
    "train.prompts_per_step=2",
    "rollout.num_generations=2",
    "eval.limit=4",
    "rollout.max_turns=1",
]


async def call(client: Any, tool: str, arguments: dict[str, Any]) -> Any:
    """The data of a call's envelope."""
    found = await client.call_tool(tool, arguments)
    return found.structured_content["data"]


async def ended(client: Any, run: str) -> str:
    """How a run ended, which is waited for."""
    while (status := (await call(client, "status", {"run": run}))["run"]["status"]) == "running":  # noqa: ASYNC110 - a server
        await asyncio.sleep(3)
    return str(status)


async def main(rlf: str, folder: Path) -> None:
    """Prints a line for each call."""
    began = time.monotonic()
    async with Client(StdioTransport(rlf, ["mcp", str(folder), "--allow-run"])) as client:
        print("tools", *sorted(tool.name for tool in await client.list_tools()))
        print("init", (await call(client, "init", {"folder": "mine", "template": "search"}))["spec"])
    async with Client(StdioTransport(rlf, ["mcp", str(folder / "mine"), "--allow-run"])) as client:
        assert (await call(client, "check", SPEC))["faults"] == []
        assert (await call(client, "plan", {**SPEC, "overrides": SMALL}))["work"]["num_steps"] == 1
        assert all(tool["ok"] for tool in await call(client, "tools_test", {"files": SPEC["specs"]}))
        assert all(term["ok"] for term in await call(client, "rewards_test", {"files": SPEC["specs"]}))
        runs = [
            (await call(client, "run", {**SPEC, "overrides": [*SMALL, seed], "budget_s": 300}))["run_id"]
            for seed in ("seed=0", "seed=1")
        ]
        for run in runs:
            await ended(client, run)
        listed = [str(resource.uri) for resource in await client.list_resources()]
        schema = await client.read_resource("rlf://schema/spec")
        spec = await client.read_resource("rlf://project/specs/mine.yaml")
        assert "RunSpec" in schema[0].text and "name: mine" in spec[0].text
        print("resources", len(listed), sorted({uri.split("/")[2] for uri in listed}))
        found = await call(client, "trajectories", {"run": runs[0], "phase": "train"})
        print("trajectories", len(found))
        print("compare", *(await call(client, "compare", {"runs": runs}))["verdicts"])
        print("why", (await call(client, "why", {"run": runs[0]}))["verdict"]["kind"])
        turns = await call(client, "why_turn", {"run": runs[0], "k": 0, "step": 1, "phase": "train", "samples": 2})
        print("why_turn", *turns)
        print("forecast", *(await call(client, "forecast", {**SPEC, "overrides": SMALL, "groups": 2})))
        longer = [*SMALL, "train.steps=40", "checkpoint.every=1"]
        run = (await call(client, "run", {**SPEC, "overrides": longer, "budget_s": 300}))["run_id"]
        while not (await call(client, "trajectories", {"run": run, "limit": 1})):  # noqa: ASYNC110 - a server
            await asyncio.sleep(1)
        assert (await call(client, "stop", {"run": run}))["run_id"] == run
        print("stop", stopped := await ended(client, run))
        assert stopped == "interrupted"
        assert (await call(client, "resume", {"run": run, "budget_s": 300}))["run_id"] == run
        print("resume", resumed := await ended(client, run))
        assert resumed == "finished"
        again = await client.call_tool("stop", {"run": run}, raise_on_error=False)
        assert again.is_error and "no process on this machine runs it" in again.content[0].text
        wrong = {**SPEC, "overrides": ["train.stepps=3"]}
        refused = await client.call_tool("check", wrong, raise_on_error=False)
        assert refused.is_error and "did you mean 'steps'" in refused.content[0].text
        late = await client.call_tool("run", {**SPEC, "budget_s": 10**6}, raise_on_error=False)
        assert late.is_error and "budget" in late.content[0].text
    shop = {"specs": ["specs/world.yaml"]}
    async with Client(StdioTransport(rlf, ["mcp", str(folder), "--allow-run"])) as client:
        await call(client, "init", {"folder": "world", "template": "shop"})
    async with Client(StdioTransport(rlf, ["mcp", str(folder / "world"), "--allow-run"])) as client:
        proven = await client.call_tool("env_prove", shop)
        print("env_prove", proven.structured_content["command"])
    async with Client(StdioTransport(rlf, ["mcp", str(folder / "mine")])) as client:  # read-only by default
        offered = {tool.name for tool in await client.list_tools()}
        assert not offered & {"run", "resume", "init", "stop", "tools_test", "rewards_test", "env_prove"}, offered
        assert (await call(client, "check", SPEC))["faults"] == []
        assert (await client.call_tool("run", SPEC, raise_on_error=False)).is_error
        print("read-only", *sorted(offered))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]).resolve()))
