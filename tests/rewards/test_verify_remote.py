"""Verify terms on tools that other processes answer: HTTP and MCP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rlf.rewards import RewardContext, RewardFunction, Term, TrajectoryFacts
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Scored
from tests.endpoints.servers import closed_port, serving
from tests.warm import MCP, warm_python

KIT = Path(__file__).parents[1] / "tools/mcp_servers/kit.py"
QUERY = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TERM = {"kind": "verify", "name": "checked", "tool": "look", "arguments": {"text": "{{ answer }}"}}


async def scored(target: Mapping[str, Any], term: Mapping[str, Any], *answers: str) -> list[Scored]:
    declared = {"name": "look", "description": "Looks.", "hidden": True, "inputSchema": QUERY, "target": target}
    tool = ToolDeclaration.model_validate({**declared, "limits": {"timeout_s": 10, "retries": 0}})
    columns = {"want": {"n": 42, "rows": [[1], [2]]}}
    facts = [TrajectoryFacts(answer=answer, gold="42", columns=columns) for answer in answers]
    async with Executor([tool]) as tools:
        context = RewardContext(tools.for_rewards, 0, lambda level, text: None)
        async with RewardFunction([Term.model_validate({**TERM, **term})], context) as function:
            return await function.score_all([each.trajectory(str(at)) for at, each in enumerate(facts)], step=1)


async def look(request: web.Request) -> web.Response:
    text = (await request.json())["text"]
    if text == "refused":
        return web.json_response({"error": "no such thing"}, status=404)
    if text == "busy":
        return web.json_response({"error": "later"}, status=429)
    number = int(text)
    return web.json_response({"n": number, "said": f"about {number}", "rows": [[2], [1]] if number == 42 else [[1]]})


COLUMN = {"expected": {"column": "want"}}
GOLD = {"expected": {"arguments": {"text": "{{ gold }}"}}}


@pytest.mark.parametrize(
    ("term", "right"),
    [
        ({"compare": "numeric"}, 0.0),  # the last number of the whole answer is a row's
        ({"compare": "json_subset", **COLUMN}, 0.0),  # lists are of one order
        ({"compare": "rows_multiset", **COLUMN}, 1.0),
        ({"compare": "rows_ordered", **COLUMN}, 0.0),
        ({"compare": "equal", **GOLD}, 1.0),
    ],
)
def test_what_a_service_says_decides_its_refusals_are_0_and_its_failures_no_value(term: Any, right: float) -> None:
    async def main() -> list[Scored]:
        async with serving(_=look) as url:
            return await scored({"kind": "http", "url": url, "method": "POST"}, term, "42", "41", "refused", "busy")

    assert [each.reward for each in asyncio.run(main())] == [right, 0.0, 0.0, None]


def test_a_service_that_is_not_there_says_nothing_of_the_model() -> None:
    async def main() -> list[Scored]:
        return await scored({"kind": "http", "url": await closed_port(), "method": "POST"}, {}, "42")

    (found,) = asyncio.run(main())
    assert found.reward is None and "look: unreachable" in found.scores[0].reason


@pytest.mark.usefixtures("own_lists")
def test_an_mcp_server_verifies() -> None:
    server = {"command": warm_python(*MCP), "args": [str(KIT)]}
    found = asyncio.run(scored({"kind": "mcp", "server": server, "tool": "echo"}, {}, "42", "41"))
    assert [each.reward for each in found] == [1.0, 0.0]
