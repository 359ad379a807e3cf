"""The questions of specs/search.yaml as a taskset of verifiers 0.4.0, and a program that plays its batches.

verifiers_rollout.py starts it. Tools are a toolset behind MCP, one server for all rollouts. The harness is a chat loop
in this process, which verifiers allows and which costs less than its own chat program: that one is a process, and an
import of openai and mcp, for each rollout (`--null`). Both ask the model through verifiers' interception.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack

import httpx
import openai
import verifiers.v1 as vf
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils.loaders import env_config_type, load_environment

from rlf.builtin.encyclopedia.calculator import calculator
from rlf.builtin.encyclopedia.search import search

SHARED = httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=None), timeout=600)
"""Connections of all rollouts: a client of its own for each would load the certificates each time."""
DECLARED: list[dict] = []
"""The tools as the model was trained with them, in OpenAI's form; MCP derives others from the signatures."""


class Question(vf.TaskData):
    answer: str


class Encyclopedia(vf.Toolset[vf.SharedToolsetConfig, vf.State]):
    TOOL_PREFIX = None

    @vf.tool
    async def search(self, query: str) -> str:
        """Find passages about a person, a town, a river or a company."""
        return search(query=query)

    @vf.tool
    async def calculator(self, expression: str) -> str:
        """Work out an arithmetic expression."""
        return str(calculator(expression=expression))


class Answer(vf.Task[Question, vf.State]):
    @vf.reward
    async def is_right(self, trace) -> float:
        return float((trace.last_message.content or "").strip().lower() == self.data.answer.strip().lower())


class Questions(vf.Taskset[Answer, vf.TasksetConfig]):
    def load(self):
        return iter(())

    def toolsets(self, config):
        return [Encyclopedia(vf.SharedToolsetConfig())]


class Chat(vf.Harness[vf.HarnessConfig]):
    SUPPORTS_MCP = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        client = openai.AsyncOpenAI(base_url=endpoint, api_key=secret, http_client=SHARED)
        messages = [{"role": "user", "content": data.prompt}]
        async with AsyncExitStack() as stack:
            config = {"mcpServers": {name: {"url": url} for name, url in mcp_urls.items()}}
            _, dispatch, servers = await connect_mcp(config, stack)
            try:
                while True:
                    done = await client.chat.completions.create(model=ctx.model, messages=messages, tools=DECLARED)
                    answer = done.choices[0].message
                    if not answer.tool_calls:
                        break
                    messages.append(answer.model_dump(exclude_none=True))
                    for call in answer.tool_calls:
                        text = await use_tool(servers, dispatch, call.function)
                        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
            except openai.APIStatusError:
                assert trace.stop_condition is not None, "refused before its last turn"
        return ProgramResult(0, "", "")


async def use_tool(servers, dispatch, function) -> str:
    if function.name not in dispatch:
        return f"no tool {function.name!r}"
    return await call_mcp(servers, dispatch, function.name, json.loads(function.arguments))


__all__ = ["Chat", "Questions"]


async def play(env, ctx, order) -> dict:
    """One batch: each question so many times, all at once."""
    tasks = [
        Answer(Question(idx=at, prompt=prompt, answer=answer), vf.TaskConfig())
        for at, (prompt, answer) in enumerate(order["questions"])
    ]
    slots = [slot for task in tasks for slot in env.slots(task, order["copies"])]
    started = time.perf_counter()
    episodes = await asyncio.gather(*(env.run_slot(slot, ctx) for slot in slots))
    wall_s = time.perf_counter() - started
    traces = [trace for episode in episodes for trace in episode.traces]
    errors = [error.message for episode in episodes for error in [*episode.errors, *episode.traces[0].errors]]
    return {
        "wall_s": wall_s,
        "success": sum(trace.reward for trace in traces) / len(slots),
        "num_sampled": sum(trace.num_output_tokens for trace in traces),
        "errors": errors[:3],
    }


async def main(url: str, model: str, harness: str, max_turns: int) -> None:
    own = "verifiers_questions"
    config = env_config_type(own).model_validate({
        "taskset": {"id": own},
        "agent": {"harness": {"id": harness}, "runtime": {"type": "subprocess"}, "max_turns": max_turns},
    })  # fmt: skip
    env = load_environment(config)
    client = EvalClientConfig(base_url=url, api_key_var="NO_KEY")
    ctx = ModelContext(client=client, model=model, sampling=vf.SamplingConfig(temperature=1.0, max_tokens=200))
    DECLARED.extend(json.loads(sys.stdin.readline()))
    async with env.serving():
        print("{}", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await play(env, ctx, json.loads(line))), flush=True)


if __name__ == "__main__" and len(sys.argv) == 1:  # verifiers starts the server of the tools so
    Encyclopedia.run()
elif __name__ == "__main__":
    import verifiers_questions

    asyncio.run(verifiers_questions.main(*sys.argv[1:4], int(sys.argv[4])))
