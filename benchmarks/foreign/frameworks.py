"""Trains a built-in model by agents on frameworks, unchanged but for their address, and prints what came of each.

    python benchmarks/foreign/frameworks.py [NAME]... [--model PATH] [--steps 10] [--set KEY=VALUE]...
        [--starve 0.03 [--hasty]]

`FRAMEWORKS` is a Python that has openai-agents, langchain-openai, langgraph, pydantic-ai-slim[openai],
smolagents[openai], anthropic, aiohttp and numpy; `--setup` makes one. Each agent is a service in a process of its own.
Trajectories that are left out of the loss are counted by what their client's errors say. With `--starve` the
agents' process runs such a share of the time, as on a machine that is far too busy; with `--hasty` its clients give a
connection up after 5 s, as they do by themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

HERE, ROOT = Path(__file__), Path(__file__).parents[2]
HOME = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rlf/frameworks"
PACKAGES = (
    "openai-agents",
    "langchain-openai",
    "langgraph",
    "langchain",
    "pydantic-ai-slim[openai]",
    "smolagents[openai]",
    "anthropic",
    "aiohttp",
    "numpy",
)
TURNS = 4
WORDS = "Find passages about a person, a town, a river or a company."


def search(query: str) -> str:
    """Find passages about a person, a town, a river or a company.

    Args:
        query: Words of the passage to find.
    """
    from rlf.builtin.encyclopedia import search as found

    return found(query)


def calculator(expression: str) -> str:
    """Work out an arithmetic expression.

    Args:
        expression: Numbers, + - * / and brackets.
    """
    from rlf.builtin.encyclopedia import calculator as found

    return found(expression)


@cache
def http(kind: str = "DefaultAsyncHttpxClient") -> Any:
    """The HTTP client of all trajectories: each new one reads the machine's certificates."""
    import openai

    return getattr(openai, kind)(**({} if "HASTY" in os.environ else {"timeout": 600}))


@contextlib.contextmanager
def starving(process: subprocess.Popen, share: float) -> Iterator[None]:
    """A process that runs a share of the time."""
    over = threading.Event()

    def starve() -> None:
        while not over.wait(share / 2):
            process.send_signal(signal.SIGSTOP)
            over.wait((1 - share) / 2)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=starve)
    if share < 1:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if share < 1:
            thread.join()


def describe(error: BaseException | None) -> str:
    """An error with what it came from, which clients hide, the first of them first."""
    found = list[str]()
    while error is not None:
        if isinstance(error, Exception):  # no cancellation: its text names tasks
            found.insert(0, f"{type(error).__name__}: {error}"[:80])
        error = error.__cause__ or error.__context__
    return ", then ".join(dict.fromkeys(found))


async def openai_agents(question: str, url: str, key: str) -> str:
    """An agent of openai-agents."""
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key=key, http_client=http())
    model = agents.OpenAIChatCompletionsModel("policy", client)
    agent = agents.Agent("searcher", tools=[agents.function_tool(search)], model=model)
    with contextlib.suppress(agents.MaxTurnsExceeded, agents.ModelBehaviorError):
        return str((await agents.Runner.run(agent, question, max_turns=TURNS)).final_output)
    return ""


async def langgraph(question: str, url: str, key: str) -> str:
    """LangChain's agent on LangGraph."""
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.errors import GraphRecursionError

    clients = {"http_client": http("DefaultHttpxClient"), "http_async_client": http()}
    agent = create_agent(ChatOpenAI(model="policy", base_url=url, api_key=key, **clients), [tool(search)])
    asked = {"messages": [("user", question)]}
    with contextlib.suppress(GraphRecursionError):
        return str((await agent.ainvoke(asked, {"recursion_limit": 2 * TURNS}))["messages"][-1].content)
    return ""


async def pydantic_ai(question: str, url: str, key: str) -> str:
    """An agent of pydantic-ai."""
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=url, api_key=key, http_client=http())
    agent = Agent(OpenAIChatModel("policy", provider=provider), tools=[search])
    with contextlib.suppress(UnexpectedModelBehavior, UsageLimitExceeded):  # no errors of its client: they are raised
        return str((await agent.run(question, usage_limits=UsageLimits(request_limit=TURNS))).output)
    return ""


async def smolagents(question: str, url: str, key: str) -> str:
    """A ToolCallingAgent, whose own system message has 3,353 characters, with both of the encyclopedia's tools."""
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    def run() -> str:
        model = OpenAIServerModel("policy", api_base=url, api_key=key)
        agent = ToolCallingAgent([tool(search), tool(calculator)], model, max_steps=TURNS, verbosity_level=-1)
        return str(agent.run(question))

    return await asyncio.to_thread(run)


async def anthropic(question: str, url: str, key: str) -> str:
    """A loop on Anthropic's SDK, streamed."""
    from anthropic import AsyncAnthropic

    tools = [
        {
            "name": "search",
            "description": WORDS,
            "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        }
    ]
    messages = [{"role": "user", "content": question}]
    async with AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key=key) as client:
        for _ in range(TURNS):
            asked = {"model": "policy", "max_tokens": 64, "tools": tools, "messages": messages}
            async with client.messages.stream(**asked) as stream:
                said = await stream.get_final_message()
            calls = [block for block in said.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in said.content if block.type == "text")
            results = []
            for call in calls:
                try:
                    found = search(**call.input)
                except TypeError as fault:
                    found = str(fault)
                results.append({"type": "tool_result", "tool_use_id": call.id, "content": found})
            messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
    return ""


AGENTS = {agent.__name__: agent for agent in (openai_agents, langgraph, pydantic_ai, smolagents, anthropic)}


def serve(name: str, port: int) -> None:
    """The agents' process."""
    from concurrent.futures import ThreadPoolExecutor

    from aiohttp import web

    search("Fodbar")  # what it lacks ends the service here: frameworks show it to the model, which then learns nothing

    async def run(request: web.Request) -> web.Response:
        body = await request.json()
        session = body["session"]
        try:
            answer = await AGENTS[name](body["task"]["prompt"], session["url"], session["key"])
        except Exception as error:  # noqa: BLE001 - whatever the framework raises is what is looked for
            return web.Response(status=500, text=describe(error).replace(session["url"], "URL"))
        return web.json_response({"answer": answer})

    async def start(_: web.Application) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(64))

    app = web.Application()
    app.on_startup.append(start)
    app.router.add_post("/run", run)
    web.run_app(app, host="127.0.0.1", port=port, print=lambda *_: None)


def spec(port: int, model: str, steps: int, max_tokens: int) -> dict:
    """The guide's spec, with a service."""
    data = {"prompt": "question", "answer": "answer", "kind": "kind"}
    return {
        "name": "frameworks",
        "model": {"path": model},
        "data": {
            "train": {"path": "builtin:encyclopedia/train", **data},
            "eval": {"path": "builtin:encyclopedia/heldout", **data},
        },
        "rewards": [{"name": "exact_match", "kind": "rule", "rule": "exact_match"}],
        "rollout": {
            "num_generations": 8,
            "agent": {"url": f"http://127.0.0.1:{port}/run", "timeout_s": 300},
            "max_total_tokens": max_tokens,
            "max_new_tokens": 64,
        },
        "train": {
            "algorithm": "reinforce_baseline",
            "learning_rate": 3e-4,
            "steps": max(1, steps),
            "prompts_per_step": 16,
            "micro_batch_tokens": 2048 if max_tokens < 2048 else 16384,
        },
        "eval": {"every": max(1, steps), "limit": 128, "greedy": False},
    }


def count_left_out(folder: str) -> dict[str, int]:
    """Trajectories of the latest run that no loss has, by why; the number of all."""
    from rlf.runs.place import open_reader
    from rlf.types import StopReason

    with open_reader(Path(folder, "runs")) as reader:
        played = reader.trajectories(reader.get_run("latest").record.id)
    broken = (re.sub(r"127\S+", "URL", one.error or "") for one in played if one.stop is StopReason.INFRA_FAILURE)
    return {"all": len(played), **Counter(broken)}


def measure(name: str, arguments: argparse.Namespace, python: str) -> None:
    """Trains by one framework, and prints."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | ({"HASTY": "1"} if arguments.hasty else {})
    service = subprocess.Popen([python, str(HERE), "--serve", name, str(port)], env=env, stderr=subprocess.DEVNULL)
    program = "import sys; from rlf.cli.start import main; sys.argv[0] = 'rlf'; main()"
    made = spec(port, arguments.model, arguments.steps, arguments.max_tokens)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        kept = arguments.keep and contextlib.nullcontext(tempfile.mkdtemp(prefix=name, dir=arguments.keep))
        with kept or tempfile.TemporaryDirectory() as folder:
            Path(folder, "agent.yaml").write_text(json.dumps(made), encoding="utf-8")
            rlf = [sys.executable, "-c", program]
            certify = [*rlf, "agent", "certify", "agent.yaml", "--num", "6", "--json", *arguments.set]
            found = subprocess.run(certify, cwd=folder, capture_output=True, text=True, check=False)
            certificate = json.loads(found.stdout.splitlines()[-1])["data"] if found.stdout else found.stderr
            print(name, json.dumps(certificate), flush=True)
            if not arguments.steps:
                return
            before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            run = [*rlf, "run", "agent.yaml", "--json", *arguments.set]
            with starving(service, arguments.starve):
                ran = subprocess.run(run, cwd=folder, capture_output=True, text=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent, wall = (
                after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                time.monotonic() - started,
            )
            said = json.loads(ran.stdout.splitlines()[-1])["data"]["verdict"] if ran.returncode == 0 else ran.stderr
            print(f"{name}: {wall:.0f} s, CPU {spent:.0f} s of rlf,", said, flush=True)
            print(f"{name}: trajectories left out", json.dumps(count_left_out(folder), indent=1), flush=True)
    finally:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        service.terminate()
        service.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{name}: CPU {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.0f} s of its process")


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*AGENTS, []], help="all of them by default")
    parser.add_argument("--model", default="builtin:tiny")
    parser.add_argument("--max-tokens", type=int, default=640)
    parser.add_argument("--steps", type=int, default=10, help="0: the certificate alone")
    parser.add_argument("--set", nargs="*", default=[], help="other keys of the spec")
    parser.add_argument("--keep", help="a folder for the runs")
    parser.add_argument("--starve", type=float, default=1.0)
    parser.add_argument("--hasty", action="store_true")
    parser.add_argument("--setup", action="store_true")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve[0], int(arguments.serve[1]))
        return
    if arguments.setup:
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        subprocess.run([HOME / "bin/pip", "install", "-q", *PACKAGES], check=True)
        return
    python = os.environ.get("FRAMEWORKS", str(HOME / "bin/python"))
    for name in arguments.names or AGENTS:
        measure(name, arguments, python)


if __name__ == "__main__":
    main()
