"""Limits, breaker and cache of a tool with `limits.scope: job` are those of all agents together."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace

from rlf.apps.openrlhf.faults import find_openrlhf_faults
from rlf.apps.openrlhf.shared import RemoteTools, SharedTools
from rlf.plan import compile as compile_plan
from rlf.plan import plan_to_json
from rlf.tools import Executor
from rlf.types import Outcome, ToolCall

from . import tools

TOOL = (
    "tools=[{name: ask, description: Asks., inputSchema: {type: object, properties: {query: {type: string}},"
    " required: [query]}, target: {kind: python, callable: 'tests.apps.openrlhf.tools:%s'}, %s}]"
)


def remote(shared):
    """An actor as Ray shows it: methods give what is waited for."""
    methods = {name: getattr(shared, name) for name in ("invoke", "end_trajectory")}
    return SimpleNamespace(
        **{
            name: SimpleNamespace(remote=lambda *given, method=method: asyncio.ensure_future(method(*given)))
            for name, method in methods.items()
        }
    )


def ask(load, override, queries, num_agents=3, max_concurrency=None):
    """What each of several agents gets for the queries, asked all at once."""
    plan = compile_plan(load(override))

    async def run():
        shared = SharedTools(plan_to_json(plan), [])
        async with AsyncExitStack() as stack:
            stack.push_async_callback(shared.close)
            agents = [
                await stack.enter_async_context(
                    Executor(plan.spec.tools, max_concurrency=max_concurrency, elsewhere=RemoteTools(remote(shared)))
                )
                for _ in range(num_agents)
            ]
            calls = [
                agent.invoke(ToolCall("ask", {"query": query}), trajectory_id=f"{number}/{query}")
                for number, agent in enumerate(agents)
                for query in queries
            ]
            results = await asyncio.gather(*calls)
            for agent in agents:
                await agent.end_trajectory("0/0")
            return results

    return asyncio.run(run())


def test_calls_of_all_agents_share_permits_and_a_cache(load):
    tools.most_at_once = tools.num_counted = 0
    limits = "limits: {scope: job, max_concurrency: 2}, cache: {scope: run}"
    results = ask(load, TOOL % ("counted", limits), ["a", "b", "c", "d"])
    assert [result.text for result in results] == ["a", "b", "c", "d"] * 3
    assert (tools.most_at_once, tools.num_counted) == (2, 4)
    assert sum(result.cached for result in results) == 8


def test_an_agents_own_permits_over_all_tools_hold_for_shared_tools_too(load):
    tools.most_at_once = tools.num_counted = 0
    results = ask(load, TOOL % ("counted", "limits: {scope: job}"), ["a", "b", "c", "d"], max_concurrency=1)
    assert all(result.outcome is Outcome.OK for result in results)
    assert (tools.most_at_once, tools.num_counted) == (3, 12)


QUERY = "description: Asks., inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}"
INNER = f"{{name: look, {QUERY}, target: {{kind: python, callable: 'tests.apps.openrlhf.tools:counted'}}, %s}}"
AGENT = (
    f"tools=[{{name: expert, {QUERY}, %s target: {{kind: agent, prompt: '{{{{ query }}}}', tools: [{INNER}], "
    "endpoints: [{url: 'http://127.0.0.1:9/v1', model: m}]}}]"
)


def test_a_tool_of_an_agent_is_the_whole_jobs_where_the_agent_is(load):
    inner = "limits: {scope: job}"
    (fault,) = find_openrlhf_faults(load(AGENT % ("", inner)))
    assert fault.path == "tools[0].target.tools[0].limits.scope"
    assert "Write it in limits of the agent 'expert'" in fault.message
    assert list(find_openrlhf_faults(load(AGENT % ("limits: {scope: job},", inner)))) == []


def test_one_breaker_counts_the_failures_of_all_agents_and_results_keep_their_outcome(load):
    limits = "limits: {scope: job, max_concurrency: 1, breaker: {failures: 4, pause_s: 60}}"
    outcomes = [result.outcome for result in ask(load, TOOL % ("unreachable", limits), ["a", "b"])]
    assert sorted(outcomes) == [Outcome.CIRCUIT_OPEN] * 2 + [Outcome.UNREACHABLE] * 4


def test_a_call_whose_process_ended_is_of_unknown_outcome():
    async def fails(*_given):
        raise ConnectionError("the actor died")

    actor = SimpleNamespace(invoke=SimpleNamespace(remote=fails))
    result = asyncio.run(RemoteTools(actor).invoke(ToolCall("ask", {}), trajectory_id="t"))
    assert result.outcome is Outcome.UNKNOWN
    assert result.outcome.is_infrastructure
