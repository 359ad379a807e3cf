"""`python benchmarks/serving.py`: what a server costs beside the sampler it is over, and whether it answers the same.

    python benchmarks/serving.py speed        # 64 clients at once: tokens/s in process, served, served as streams
    python benchmarks/serving.py equal -n 512 # greedy answers with tools to held-out questions, in process and served

`speed` also takes `--other NAME URL MODEL PID` of other servers of the same model, asked the same. `--natural` asks for
greedy answers that end where the model ends them, for servers without `ignore_eos`. Rounds of each sort take turns, and
the median counts. Tokens per second of the clock say little where others use the machine too; tokens per second of the
CPU time that a server's processes took say more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import torch

from rlf.apps.serve.dialogue import Dialogue
from rlf.chat.format import ChatFormat
from rlf.data import load_tasks
from rlf.engines.engine import HostSettings
from rlf.engines.local.host import PolicyHost
from rlf.engines.local.restored import load_host
from rlf.rollout.loop import play
from rlf.rollout.rollout import Rollout
from rlf.spec.load import load_spec
from rlf.spec.model_files import model_location
from rlf.training.harness import Harness, build_harness
from rlf.types import Task, ToolCall
from rlf.types.policy import Sampling

SPEC = Path(__file__).parents[1] / "specs" / "search.yaml"
MODEL = "builtin:tiny"
CLIENTS = 64


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to."""

    num_tokens: int
    wall_s: float
    cpu_s: float
    """Of the processes that serve."""

    @property
    def rates(self) -> tuple[float, float]:
        """Tokens per second of the clock, and of CPU time."""
        return self.num_tokens / self.wall_s, self.num_tokens / self.cpu_s if self.cpu_s else float("nan")


def load() -> tuple[PolicyHost, Any, Harness, list[Task]]:
    """The model, what its trajectories are played with, and the held-out questions."""
    spec = load_spec([SPEC]).spec
    host, tokenizer = load_host(model_location(MODEL), HostSettings(num_slots=CLIENTS))
    harness = build_harness(spec, tokenizer, lambda level, text: print(level, text, file=sys.stderr))
    assert spec.data.eval is not None
    return host, tokenizer, harness, load_tasks(**spec.data.eval.model_dump(), declared=[t.name for t in spec.tools])


@asynccontextmanager
async def served(*arguments: str) -> AsyncIterator[tuple[str, int]]:
    """The URL of `rlf serve` as a process, and its id."""
    command = [sys.executable, "-m", "rlf", "serve", MODEL, *arguments, "--port", "0", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        yield json.loads(await process.stdout.readline())["data"]["url"], process.pid
    finally:
        process.terminate()
        await process.wait()


def cpu_s_of(pid: int) -> float:
    """CPU time that a process and those that it started have taken; 0 for none."""
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(cpu_s_of(int(pid)) for pid in children)


async def sample_here(
    host: PolicyHost, chat: ChatFormat, tasks: list[Task], max_tokens: int, *, natural: bool
) -> Round:
    """So many conversations at once by the sampler itself, their prompts rendered and their answers read."""
    sampling = Sampling(temperature=0.0, stop_token_ids=tuple(chat.stop_token_ids)) if natural else Sampling()
    started, cpu_s = time.perf_counter(), time.process_time()
    limit = asyncio.Semaphore(CLIENTS)

    async def complete(at: int, task: Task) -> int:
        async with limit:
            tokens = chat.prompt(task.messages, chat.tools)
            sample = await host.complete(tokens, max_tokens, sampling, at)
            chat.parse(chat.decode(sample.tokens), truncated=True)
            return len(sample.tokens)

    sizes = await asyncio.gather(*(complete(at, task) for at, task in enumerate(tasks)))
    return Round(sum(sizes), time.perf_counter() - started, time.process_time() - cpu_s)


def body_of(task: Task, model: str, **keys: Any) -> dict[str, Any]:
    """A question as a request."""
    messages = [{"role": message.role, "content": message.content} for message in task.messages]
    return {"model": model, "messages": messages, **keys}


async def ask_served(
    url: str, pid: int, model: str, tools: list[Any], tasks: list[Task], max_tokens: int, *, stream: bool, natural: bool
) -> Round:
    """The same conversations by as many clients at once."""
    limit = asyncio.Semaphore(CLIENTS)
    connector = aiohttp.TCPConnector(limit=CLIENTS)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(1200)) as session:

        async def ask(at: int, task: Task) -> int:
            keys: dict[str, Any] = {"max_tokens": max_tokens, "tools": tools, "stream": stream}
            keys |= {"temperature": 0} if natural else {"temperature": 1, "seed": at, "ignore_eos": True}
            if stream:
                keys["stream_options"] = {"include_usage": True}
            async with limit, session.post(f"{url}/chat/completions", json=body_of(task, model, **keys)) as response:
                if response.status != 200:
                    raise SystemExit(f"{response.status}: {(await response.text())[:300]}")
                if not stream:
                    return int((await response.json())["usage"]["completion_tokens"])
                last = b""
                async for line in response.content:
                    last = line if b'"usage"' in line else last
                return int(json.loads(last.removeprefix(b"data: "))["usage"]["completion_tokens"])

        started, cpu_s = time.perf_counter(), cpu_s_of(pid)
        sizes = await asyncio.gather(*(ask(at, task) for at, task in enumerate(tasks)))
        return Round(sum(sizes), time.perf_counter() - started, cpu_s_of(pid) - cpu_s)


async def compare_speed(
    num: int, max_tokens: int, rounds: int, others: list[tuple[str, str, str, int]], *, natural: bool
) -> None:
    """Prints each sort's tokens per second beside the sampler's."""
    host, _, harness, tasks = load()
    tasks, chat = tasks[:num], harness.chat
    tools = [tool.as_openai() for tool in chat.tools]
    found: dict[str, list[Round]] = {}
    async with host, served() as (url, pid):
        servers = [("rlf serve", url, MODEL, pid), *others]
        for at in range(rounds + 1):  # the first warms up
            here = await sample_here(host, chat, tasks, max_tokens, natural=natural)
            turns: list[tuple[str, Round]] = [("in process", here)]
            for name, base, model, of in servers:
                for stream in (False, True):
                    asked = ask_served(base, of, model, tools, tasks, max_tokens, stream=stream, natural=natural)
                    turns.append((f"{name}{', stream' if stream else ''}", await asked))
            for sort, result in turns if at else []:
                found.setdefault(sort, []).append(result)
    own = [statistics.median(r.rates[k] for r in found["in process"]) for k in (0, 1)]
    print(f"{num} conversations of {max_tokens} tokens, {CLIENTS} at once, median of {rounds} rounds")
    print(f"{'':28}{'tokens/s':>10}{'ratio':>8}{'tokens/CPU s':>14}{'ratio':>8}")
    for sort, results in found.items():
        wall, cpu = (statistics.median(result.rates[kind] for result in results) for kind in (0, 1))
        print(f"{sort:28}{wall:10.0f}{wall / own[0]:8.2f}{cpu:14.0f}{cpu / own[1]:8.2f}")


async def play_over_http(
    session: aiohttp.ClientSession, url: str, task: Task, harness: Harness, tools: list[Any]
) -> tuple[list[int], str]:
    """One question by a client that runs the tools; the tokens of the whole conversation, and the answer."""
    body = body_of(task, MODEL, temperature=0, return_token_ids=True, tools=tools)
    for _ in range(harness.limits.max_turns):
        async with session.post(f"{url}/chat/completions", json=body) as response:
            answer = await response.json()
        choice = answer["choices"][0]
        tokens = answer["prompt_token_ids"] + choice["token_ids"]
        message = choice["message"]
        if not message.get("tool_calls"):
            return tokens, message["content"]
        body["messages"] = [*body["messages"], message]
        for call in message["tool_calls"]:
            asked = ToolCall(call["function"]["name"], json.loads(call["function"]["arguments"]))
            result = await harness.tools.invoke(asked, trajectory_id=task.id)
            body["messages"].append({"role": "tool", "tool_call_id": call["id"], "content": result.text})
    return tokens, ""


async def compare_answers(num: int) -> int:
    """Prints how many greedy conversations differ, token by token; their number."""
    host, tokenizer, harness, tasks = load()
    tasks, tools = tasks[:num], [tool.as_openai() for tool in harness.chat.tools]
    assert Dialogue(tokenizer).chat(harness.chat.tools) is not None
    differing = {"client's loop": 0, "--agent": 0}
    num_calls, limit = 0, asyncio.Semaphore(CLIENTS)
    async with host, harness.tools, served() as (url, _), served(str(SPEC), "--agent") as (agent_url, _):
        setting = harness.setting(host, harness.greedy)
        setting.open([task.id for task in tasks])
        played = await asyncio.gather(*(play(Rollout(task.id, task, 0, 0), setting) for task in tasks))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as session:

            async def check(task: Task, tokens: list[int], answer: str | None) -> None:
                async with limit:
                    sampled, said = await play_over_http(session, url, task, harness, tools)
                    body = body_of(task, MODEL, temperature=0, return_token_ids=True)
                    async with session.post(f"{agent_url}/chat/completions", json=body) as response:
                        whole = await response.json()
                ids = whole["prompt_token_ids"] + whole["choices"][0]["token_ids"]
                if sampled != tokens or (answer is not None and said != answer):
                    differing["client's loop"] += 1
                    print(f"{task.id}: {harness.chat.decode(sampled)!r} served, {harness.chat.decode(tokens)!r} here")
                differing["--agent"] += ids != tokens or whole["choices"][0]["message"]["content"] != (answer or "")

            await asyncio.gather(*(check(t, list(p.tokens), p.answer) for t, p in zip(tasks, played, strict=True)))
    num_calls = sum(len(turn.calls) for trajectory in played for turn in trajectory.turns)
    print(f"{num} questions, {num_calls} calls; conversations that differ from those in process: {differing}")
    return sum(differing.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "equal"])
    parser.add_argument("-n", type=int, default=256)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--natural", action="store_true")
    parser.add_argument("--other", nargs=4, action="append", default=[], metavar=("NAME", "URL", "MODEL", "PID"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.what == "equal":
        sys.exit(bool(asyncio.run(compare_answers(asked.n))))
    others = [(name, url, model, int(pid)) for name, url, model, pid in asked.other]
    asyncio.run(compare_speed(asked.n, asked.max_tokens, asked.rounds, others, natural=asked.natural))
