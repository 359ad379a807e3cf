"""What a session costs: CPU of a call over the sampler's own, with many agents at once.

    python benchmarks/agents.py --num 256
    python benchmarks/agents.py --steps 8 [--layers 18]

A service of its own process plays the trajectories, three calls each, with one tool result between two calls; the
policy is a script, which costs next to nothing. Prints the CPU of the process that answers by call, and the same
script through rlf's own loop. Medians of three rounds.

With `--steps`: the steps of `rlf run` on the built-in questions, by rlf's loop and by the guide's agent, which
`callable` runs in rlf's process. Medians of their time, and all CPU of both processes. `--layers`: the model has so
many, of which those after its own three do nothing at first: it answers as before, and a turn costs what it costs a
larger model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

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


def serve(port: int) -> None:
    """The agents' process."""
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

    app = web.Application()
    app.router.add_post("/run", run)
    web.run_app(app, host="127.0.0.1", port=port, print=lambda *_: None)


async def play(player, rollouts: list[Rollout]) -> float:
    """CPU of this process by call."""
    player.open([rollout.id for rollout in rollouts])
    started = time.process_time()
    played = await asyncio.gather(*(player.play(rollout) for rollout in rollouts))
    spent = time.process_time() - started
    assert all(each.answer == "Paris" and len(each.turns) == len(SCRIPT) for each in played), played[0].error
    return spent / (len(rollouts) * len(SCRIPT))


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

    ours, theirs = [], []
    gc.freeze()  # as `rlf` does once it has started: what was loaded is no garbage
    gc.set_threshold(20_000)
    agent = AgentSpec(url=f"http://127.0.0.1:{port}/run", timeout_s=120)
    async with Executor((tool,)) as executor, AgentServer(agent, tokenizer) as server:
        for _ in range(rounds):
            theirs.append(await play(server.player(setting(), overrides=True), rollouts))
            ours.append(await play(setting(), rollouts))
    print(f"{num} sessions at once, {len(SCRIPT)} calls each")
    print(f"agent, CPU by call   {median(theirs) * 1000:.2f} ms")
    print(f"loop, CPU by turn    {median(ours) * 1000:.2f} ms")


BLOCK = re.compile(r"^```\w+ (?P<name>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
GUIDE = Path(__file__).parents[1] / "docs/guides/agents.md"


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


def compare_steps(steps: int, num_layers: int | None) -> None:
    """Runs the guide's spec by its agent, and by the loop with the same tool."""
    with tempfile.TemporaryDirectory() as folder:
        model = [] if num_layers is None else [f"model.path={deepen(Path(folder, 'deep'), num_layers)}"]
        for block in BLOCK.finditer(GUIDE.read_text(encoding="utf-8")):
            Path(folder, block["name"]).write_text(block["text"], encoding="utf-8")
        tool = GUIDE.parents[2] / "tool_specs/search.yaml"
        loop = ["rollout.agent=null", f"tools=[{tool}]", "rollout.max_turns=4"]
        program = "import sys; from rlf.cli.start import main; sys.argv[0] = 'rlf'; main()"
        for name, own in (("loop", loop), ("agent", []), ("loop", loop), ("agent", [])):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-c", program, "run", "agent.yaml", f"train.steps={steps}", "eval=null"]
            subprocess.run([*command, "~data.eval", *model, *own], cwd=folder, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            with open_reader(Path(folder, "runs")) as reader:
                run_id = reader.get_run("latest").record.id
                times = [step.metrics["time/step_s"] for step in reader.steps(run_id)]
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"{name:6} {median(times):.2f} s a step, {cpu_s:.1f} s of CPU with the start")


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    if arguments.steps:
        compare_steps(arguments.steps, arguments.layers)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
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
