"""What a session costs: CPU of a call over the sampler's own, with many agents at once.

    python benchmarks/agents.py --num 256
    python benchmarks/agents.py --steps 3 [--layers 18] [--sdk]
    python benchmarks/agents.py --equal 14

A service of its own process plays the trajectories, three calls each, with one tool result between two calls; the
policy is a script, which costs next to nothing. Prints the CPU of the process that answers by call, that of the agents'
process with aiohttp and with the `openai` SDK on httpx and on aiohttp; the CPU of the guide's agent in the process that
answers, which asks without HTTP, both sides together; the CPU of a server that does no more than answer what the
session would (HTTP alone), and the same script through rlf's own loop. Medians of three rounds.

With `--steps`: the steps of `rlf run` on the built-in questions, by rlf's loop; by the guide's agent in rlf's process,
which asks its session without HTTP (`session`); by an agent in rlf's process over HTTP (`client`): the guide's with an
aiohttp client for each trajectory, or with `--sdk` the guide's on the `openai` SDK; and by the same one as a service of
its own process. Medians of a step's time, the shortest, and the CPU of a step in rlf's process. Then the least of two
rounds beside the loop's, and of `client` the floor: the loop's CPU and for each call of a step what it costs the same
agent to ask a server that has its answers ready, that server included. `--layers`: the model has so many, of which
those after its own three do nothing at first: it answers as before, and a turn costs what it costs a larger model.

With `--equal`: so many steps of `specs/search.yaml` under `schedule: invariant`, by rlf's loop and by `ask_by_sdk`, an
agent of 30 lines on the `openai` SDK. Prints how many trajectories are equal, bit for bit, and how the losses differ.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib.util
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from statistics import median
from types import SimpleNamespace

from rlf.apps.serve.agents import AgentServer
from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.chat.format import open_format
from rlf.rollout.loop import Setting
from rlf.rollout.rollout import Rollout, RolloutLimits
from rlf.rollout.scripted import ScriptedPolicy
from rlf.runs.place import open_reader
from rlf.spec.agent import AgentSpec
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.execution.executor import Executor
from rlf.types import Message, Task
from rlf.types.policy import Sampling

CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "capital"}}\n</tool_call><|im_end|>'
SCRIPT = (CALL, CALL, "Paris<|im_end|>")
SEARCH = {
    "name": "search",
    "description": "S.",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    "target": {"kind": "python", "callable": "agents:search", "isolation": "inline"},
}


def search(query: str) -> str:
    """What the tool of both says."""
    return "Paris is here."


def serve(port: int, source: str | None) -> None:
    """The agents' process. Args: source: a file whose agent it plays too."""
    from aiohttp import ClientSession, web

    schema = {
        "type": "function",
        "function": {"name": "search", "description": "S.", "parameters": SEARCH["inputSchema"]},
    }
    clients: list[ClientSession] = []

    async def run(request: web.Request) -> web.Response:
        body = await request.json()
        url, key = body["session"]["url"], body["session"]["key"]
        if not clients:
            clients.append(ClientSession())
        messages = list(body["task"]["messages"])
        while True:
            asked = {"model": "policy", "messages": messages, "tools": [schema]}
            head = {"Authorization": f"Bearer {key}"}
            async with clients[0].post(f"{url}/chat/completions", json=asked, headers=head) as response:
                message = (await response.json())["choices"][0]["message"]
            if not message.get("tool_calls"):
                return web.json_response({"answer": message["content"]})
            results = [{"role": "tool", "tool_call_id": c["id"], "content": search("")} for c in message["tool_calls"]]
            messages += [message, *results]

    async def run_sdk(request: web.Request) -> web.Response:
        body = await request.json()
        shared = sdk(on_aiohttp=request.path != "/openai")
        client = shared.with_options(base_url=body["session"]["url"], api_key=body["session"]["key"])
        messages = list(body["task"]["messages"])
        while True:
            answer = await client.chat.completions.create(model="policy", messages=messages, tools=[schema])
            message = answer.choices[0].message
            if not message.tool_calls:
                return web.json_response({"answer": message.content})
            results = [{"role": "tool", "tool_call_id": call.id, "content": search("")} for call in message.tool_calls]
            messages += [message, *results]

    async def run_guide(request: web.Request) -> web.Response:
        body = await request.json()
        task, session = (SimpleNamespace(**body[name]) for name in ("task", "session"))
        return web.json_response({"answer": await agent(task, session)})

    async def spent(request: web.Request) -> web.Response:
        return web.json_response(time.process_time())

    app = web.Application()
    app.router.add_post("/aiohttp", run)
    app.router.add_post("/openai", run_sdk)
    app.router.add_post("/openai-aiohttp", run_sdk)
    agent = ask_by_client if source is None else load(Path(source).read_text(encoding="utf-8"))["run"]
    app.router.add_post("/guide", run_guide)
    app.router.add_get("/spent", spent)
    web.run_app(app, host="127.0.0.1", port=port, print=lambda *_: None)


async def play(player, rollouts: list[Rollout]) -> float:
    """CPU of this process by call."""
    player.open([rollout.id for rollout in rollouts])
    started = time.process_time()
    played = await asyncio.gather(*(player.play(rollout) for rollout in rollouts))
    spent = time.process_time() - started
    assert all(each.answer == "Paris" and len(each.turns) == len(SCRIPT) for each in played), played[0].error
    return spent / (len(rollouts) * len(SCRIPT))


async def answer_alone(num: int, url: str) -> float:
    """CPU of this process by call, where it is a server that has all answers ready."""
    async with answers_ready() as own:
        return await ask_service(num, url, own)


@contextlib.asynccontextmanager
async def answers_ready():
    """The address of a server that has its answers ready: two calls, then the town."""
    from aiohttp import web

    made = {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"query": "capital"}'}}
    calls = {"role": "assistant", "content": None, "tool_calls": [made]}
    says = [calls, calls, {"role": "assistant", "content": "Paris"}]

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        said = says[sum(message["role"] == "tool" for message in body["messages"])]
        return web.json_response({"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield "http://{}:{}/v1".format(*runner.addresses[0][:2])
    await runner.cleanup()


async def ask_service(num: int, url: str, own: str) -> float:
    """CPU of this process by call of so many agents of a service."""
    from aiohttp import ClientSession

    asked = {"task": {"messages": [{"role": "user", "content": "Which town?"}]}, "session": {"url": own, "key": "k"}}
    async with ClientSession() as client:

        async def ask() -> str:
            async with client.post(url, json=asked) as response:
                return (await response.json())["answer"]

        started = time.process_time()
        answers = await asyncio.gather(*(ask() for _ in range(num)))
        spent = time.process_time() - started
    assert set(answers) == {"Paris"}
    return spent / (num * len(SCRIPT))


def load(source: str) -> dict:
    """What a text defines."""
    found: dict = {}
    exec(source, found)
    return found


async def ask_without_http(task, session):
    """The guide's agent, with the tool that the others have here."""
    guides_agent()["search"] = search
    return await guides_agent()["run"](task, session)


async def ask_by_client(task, session):
    """The guide's agent over HTTP, by a client of aiohttp of its own."""
    from aiohttp import ClientSession

    async with ClientSession(headers={"Authorization": f"Bearer {session.key}"}) as client:

        async def chat(**asked) -> dict:
            async with client.post(f"{session.url}/chat/completions", json={"model": "policy", **asked}) as response:
                response.raise_for_status()
                return await response.json()

        return await guides_agent()["run"](task, SimpleNamespace(chat=chat))


@cache
def guides_agent() -> dict:
    """What the guide's agent defines."""
    return load(next(block["text"] for block in guides_files() if block["name"] == "my_agent.py"))


def play_alone(source: str | None, num: int) -> None:
    """Prints the CPU of a call over HTTP, with that of the server that is asked; least of three rounds.

    Args:
        source: the file of an agent; None: `ask_by_client`.
    """
    defined = guides_agent() if source is None else load(Path(source).read_text(encoding="utf-8"))
    defined["search"] = search  # the loop's time has the real one
    run = ask_by_client if source is None else defined["run"]

    async def rounds() -> list[float]:
        spent = []
        async with answers_ready() as url:
            task = SimpleNamespace(messages=[{"role": "user", "content": "Which town?"}])
            session = SimpleNamespace(url=url, key="k")
            for _ in range(4):  # the first imports and connects
                started = time.process_time()
                answers = await asyncio.gather(*(run(task, session) for _ in range(num)))
                spent.append(time.process_time() - started)
                assert set(answers) == {"Paris"}
        return spent[1:]

    print(min(asyncio.run(rounds())) / (num * len(SCRIPT)))


async def read_spent(url: str) -> float:
    """CPU of the agents' process so far."""
    from aiohttp import ClientSession

    async with ClientSession() as client, client.get(f"{url}/spent") as response:
        return await response.json()


async def measure(num: int, port: int, rounds: int) -> None:
    """Plays and prints."""
    tokenizer = load_tokenizer(str(builtin_path("tiny")))
    chat = open_format("auto", tokenizer, [])
    task = Task("t", (Message("user", "Which town?"),))
    rollouts = [Rollout(f"r{at}", task, at, seed=at) for at in range(num)]
    tool = ToolDeclaration.model_validate(SEARCH)

    def setting() -> Setting:
        policy = ScriptedPolicy(tokenizer, SCRIPT)
        shown = open_format("auto", tokenizer, [tool.description_for_model])
        limits = RolloutLimits(max_turns=4, max_total_tokens=600)
        return Setting(policy, shown, executor, limits, Sampling(stop_token_ids=chat.stop_token_ids))

    ours, alone = [], []
    names = ["aiohttp", *(["openai", "openai-aiohttp"] if has_sdk() else [])]
    root, clients = f"http://127.0.0.1:{port}", {name: ([], []) for name in names}
    gc.freeze()  # as `rlf` does once it has started: what was loaded is no garbage
    gc.set_threshold(20_000)
    async with Executor((tool,)) as executor:
        for name, (here, there) in clients.items():
            async with AgentServer(AgentSpec(url=f"{root}/{name}", timeout_s=120), tokenizer) as server:
                for round_ in range(rounds + 1):
                    before = await read_spent(root)
                    spent = await play(server.player(setting(), overrides=True), rollouts)
                    if round_:  # the first imports
                        here.append(spent)
                        there.append((await read_spent(root) - before) / (num * len(SCRIPT)))
        async with AgentServer(AgentSpec(callable=f"{MYSELF[1]}:ask_without_http", timeout_s=120), tokenizer) as server:
            without = [await play(server.player(setting(), overrides=True), rollouts) for _ in range(rounds + 1)]
        for _ in range(rounds):
            alone.append(await answer_alone(num, f"{root}/aiohttp"))
            ours.append(await play(setting(), rollouts))
    print(f"{num} sessions at once, {len(SCRIPT)} calls each; CPU of a call")
    for name, (here, there) in clients.items():
        print(f"agents on {name:14} the session's side {median(here) * 1000:.2f} ms, the agent's", end=" ")
        print(f"{median(there) * 1000:.2f} ms")
    print(f"agents in the process, without HTTP: both sides {median(without[1:]) * 1000:.2f} ms")
    print(f"HTTP alone         the server's side {median(alone) * 1000:.2f} ms")
    print(f"loop               a turn {median(ours) * 1000:.2f} ms")


BLOCK = re.compile(r"^```\w+ (?P<name>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
GUIDE = Path(__file__).parents[1] / "docs/guides/agents.md"


def guides_files():
    """The files that the guide shows."""
    return BLOCK.finditer(GUIDE.read_text(encoding="utf-8"))


def deepen(folder: Path, num_layers: int) -> str:
    """The tiny model with so many layers, of which the added ones give on what they get; its path."""
    import torch
    from transformers import AutoModelForCausalLM

    tiny = AutoModelForCausalLM.from_pretrained(builtin_path("tiny"))
    config = type(tiny.config)(
        **tiny.config.to_dict() | {"num_hidden_layers": num_layers, "layer_types": ["full_attention"] * num_layers}
    )
    deep = AutoModelForCausalLM.from_config(config)
    deep.load_state_dict(tiny.state_dict(), strict=False)
    for layer in deep.model.layers[tiny.config.num_hidden_layers :]:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    deep.save_pretrained(folder)
    load_tokenizer(str(builtin_path("tiny"))).save_pretrained(folder)
    return str(folder)


def has_sdk() -> bool:
    """Whether the SDK is here, whose client may be aiohttp."""
    return importlib.util.find_spec("openai") is not None


@cache
def sdk(*, on_aiohttp: bool = False):
    """The client of all trajectories, each with its own address and key."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    http = {"http_client": DefaultAioHttpClient()} if on_aiohttp else {}
    return AsyncOpenAI(base_url="http://127.0.0.1", api_key="of each session", **http)


async def ask_by_sdk(task, session):
    """An agent on the `openai` SDK, with the tools of the spec."""
    client = sdk().with_options(base_url=session.url, api_key=session.key)

    async def reach(method: str, **params):
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await client.post(session.mcp_url, body=asked, cast_to=object))["result"]

    tools = []
    for tool in (await reach("tools/list"))["tools"]:
        tool["parameters"] = tool.pop("inputSchema")
        tools.append({"type": "function", "function": tool})
    messages = list(task.messages)
    for _ in range(4):
        answer = await client.chat.completions.create(model="policy", messages=messages, tools=tools)
        message = answer.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            arguments = json.loads(call.function.arguments)
            found = (await reach("tools/call", name=call.function.name, arguments=arguments))["content"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found[0]["text"]})
    return None


MYSELF = [sys.executable, str(Path(__file__).resolve())]
PROGRAM = "import sys; from rlf.cli.start import main; sys.argv[0] = 'rlf'; main()"


def compare_tokens(steps: int) -> None:
    """Trains by the loop and by the agent, and compares all that was sampled and learned."""
    spec = str(GUIDE.parents[2] / "specs/search.yaml")
    keys = [f"train.steps={steps}", f"eval.every={steps}", "eval.limit=256", "rollout.schedule=invariant"]
    keys += ["rollout.max_parse_failures=0"]  # the agent corrects no malformed call either
    ways = {"loop": [], "agent": [f"rollout.agent.callable={Path(__file__).resolve()}:ask_by_sdk"]}
    rows, losses, found = {}, {}, []
    with tempfile.TemporaryDirectory() as folder:
        for name, own in ways.items():
            command = [sys.executable, "-c", PROGRAM, "run", spec, "--json", *keys, *own]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            with open_reader(Path(folder, "runs")) as reader:
                run_id = reader.get_run("latest").record.id
                heads = reader.trajectories(run_id)
                for head, stored in zip(heads, reader.wholes(run_id, heads), strict=True):
                    one = stored.scored.trajectory
                    sampled = one.tokens, one.action_mask, one.rollout_logprobs, one.forks
                    row = *map(list, sampled), head.reward, head.advantage
                    rows.setdefault((head.phase, head.step, head.k), {})[name] = row
                losses[name] = [step.metrics["loss/policy"] for step in reader.steps(run_id)]
                tried = [(one.mode, one.step, one.metrics["success"]) for one in reader.evaluations(run_id)]
                found.append(f"{name:6}" + ", ".join(f"{mode} {step}: {value:.1%}" for mode, step, value in tried))
    print("\n".join(found))
    equal = sum(len(row) == 2 and row["loop"] == row["agent"] for row in rows.values())
    print(f"{equal:,} of {len(rows):,} trajectories have equal tokens, masks, log-probabilities, rewards, advantages")
    most = max(abs(one - other) for one, other in zip(*losses.values(), strict=True))
    print(f"losses of {steps} steps differ by {most:g} at most")


def compare_steps(steps: int, num_layers: int | None, port: int, *, is_sdk: bool) -> None:
    """Runs the guide's spec by the loop, and by agents that reach the policy by each of the ways there are."""
    with tempfile.TemporaryDirectory() as folder:
        model = [] if num_layers is None else [f"model.path={deepen(Path(folder, 'deep'), num_layers)}"]
        for block in guides_files():
            Path(folder, block["name"]).write_text(block["text"], encoding="utf-8")
        tool = GUIDE.parents[2] / "tool_specs/search.yaml"
        loop = ["rollout.agent=null", f"tools=[{tool}]", "rollout.max_turns=4"]

        file = ["--file", "openai_agent.py"] if is_sdk else []
        client = "openai_agent.py:run" if is_sdk else f"{MYSELF[1]}:ask_by_client"
        ways = {"loop": loop, "session": [], "client": [f"rollout.agent.callable={client}"]}
        ways["service"] = ["rollout.agent.callable=null", f"+rollout.agent.url=http://127.0.0.1:{port}/guide"]
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        service = subprocess.Popen([*MYSELF, "--serve", str(port), *file], cwd=folder, stderr=subprocess.DEVNULL)
        for name in [*ways, *ways]:
            command = [sys.executable, "-c", PROGRAM, "run", "agent.yaml", f"train.steps={steps}", "eval=null"]
            subprocess.run([*command, "~data.eval", *model, *ways[name]], cwd=folder, check=True, capture_output=True)
            with open_reader(Path(folder, "runs")) as reader:
                run_id = reader.get_run("latest").record.id
                metrics = [step.metrics for step in reader.steps(run_id)]
                num_calls = sum(head.num_turns for head in reader.trajectories(run_id)) / steps
            wall_s, cpu_s = (median(each[f"time/{key}_s"] for each in metrics) for key in ("step", "processor"))
            least_s = min(each["time/step_s"] for each in metrics)
            print(f"{name:8} {wall_s:.2f} s a step, the shortest {least_s:.2f} s, {cpu_s:.2f} s of CPU", flush=True)
            found[name].append((least_s, cpu_s))
        service.terminate()
        service.wait()
        command = [*MYSELF, "--alone", *file, "--num", "128"]
        alone = subprocess.run(command, cwd=folder, check=True, capture_output=True)
        each_s = float(alone.stdout)
        least = {name: [min(values) for values in zip(*rounds, strict=True)] for name, rounds in found.items()}
        (loop_wall_s, loop_s), (_, session_s), (_, client_s) = (least[name] for name in ("loop", "session", "client"))
        own_s, floor_s = (session_s - loop_s) / num_calls, loop_s + num_calls * each_s
        print(f"session / loop {session_s / loop_s:.2f}: without HTTP, {own_s * 1000:.2f} ms more for a call")
        print(f"client / loop {client_s / loop_s:.2f}; floor {floor_s / loop_s:.2f}: {num_calls:.0f} calls of", end=" ")
        print(f"{each_s * 1000:.2f} ms by client and HTTP alone; rlf's own {(client_s - floor_s) / loop_s:.2f}")
        print(f"service / loop, CPU of rlf's process {least['service'][1] / loop_s:.2f}, shortest steps", end=" ")
        print(f"{least['service'][0] / loop_wall_s:.2f}")


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--sdk", action="store_true")
    parser.add_argument("--equal", type=int)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.file)
        return
    if arguments.alone:
        play_alone(arguments.file, arguments.num)
        return
    if arguments.equal:
        compare_tokens(arguments.equal)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if arguments.sdk and not has_sdk():
        raise SystemExit('--sdk: needs `pip install "openai[aiohttp]"`')
    if arguments.steps:
        compare_steps(arguments.steps, arguments.layers, port, is_sdk=arguments.sdk)
        return
    service = subprocess.Popen([sys.executable, __file__, "--serve", str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        asyncio.run(measure(arguments.num, port, arguments.rounds))
    finally:
        service.terminate()
        service.wait()


if __name__ == "__main__":
    main()
