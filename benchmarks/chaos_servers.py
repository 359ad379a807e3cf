"""What runs lose when their servers fail for real: a tool, a judge and a model behind servers that misbehave.

    python -m benchmarks.chaos_servers [--only NAMES]
    python -m benchmarks.chaos_servers --specs [--only SPECS] [--faults NAMES]

One server on loopback answers calls of a tool and the requests of a judge; of three requests one meets the fault: an
error, a reply that takes a second, none at all, bytes that mean nothing, a connection that is cut off. Each fault is a
run of three steps of the built-in search, and an evaluation of a model behind the same server; they are looked at as
`rlf chaos` does.

With `--specs` these servers are well, and `rlf chaos` tries its faults of servers on every shipped spec that asks one
(those of models from Hugging Face with the built-in model on the local engine), the judge's template of `rlf init`, and
the built-in search with its tool behind HTTP, MCP over HTTP, a model and an agent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from rlf.apps.chaos.chaos import _look, _Process, _verify
from rlf.builtin import encyclopedia
from rlf.processes.forking import die_with
from rlf.runs.place import open_reader

ROOT = Path(__file__).parents[1]
FAULTS = ("none", "errors", "latency", "hangs", "garbage", "drops")
SMALL = ["train.steps=3", "train.prompts_per_step=3", "rollout.num_generations=3", "eval.limit=6", "checkpoint.every=1"]


class Server:
    """Tools, judges and models behind one port, on a thread of its own."""

    def __init__(self) -> None:
        self.fault = "none"
        self.counts = {"tool": 0, "judge": 0, "model": 0}
        self.struck = dict.fromkeys(self.counts, 0)
        self.port = 0
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait(60)

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_post("/search", self._search)
        app.router.add_post("/retrieve", self._retrieve)
        app.router.add_post("/judge/v1/chat/completions", self._judge)
        app.router.add_post("/model/v1/chat/completions", self._model)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await asyncio.Event().wait()

    async def _meet(self, request: web.Request, what: str) -> web.StreamResponse | None:
        """The answer of a request that meets the fault; None for the others."""
        self.counts[what] += 1
        if self.fault == "none" or self.counts[what] % 3:
            return None
        self.struck[what] += 1
        if self.fault == "errors":
            return web.Response(status=500, text="index shard is not loaded")
        if self.fault == "latency":
            await asyncio.sleep(1)
            return None
        if self.fault == "hangs":
            await asyncio.sleep(600)
        if self.fault == "garbage":
            return web.Response(body=b"\xff\x00{]" * 50, content_type="application/json")
        assert request.transport is not None, "a request without a connection"
        request.transport.abort()
        return web.Response()

    async def _search(self, request: web.Request) -> web.StreamResponse:
        query = (await request.json())["query"]
        return await self._meet(request, "tool") or web.json_response({"found": encyclopedia.search(query)})

    async def _retrieve(self, request: web.Request) -> web.StreamResponse:
        """As Search-R1's server: the first line of a document is its title."""
        found = [f"Passage\n{encyclopedia.search(query)}" for query in (await request.json())["queries"]]
        return web.json_response({"result": [[{"document": {"contents": text}, "score": 1.0}] for text in found]})

    async def _judge(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        score = 1 + len(body) % 10
        return await self._meet(request, "judge") or self._say(json.dumps({"reason": "fine", "score": score}))

    async def _model(self, request: web.Request) -> web.StreamResponse:
        return await self._meet(request, "model") or self._say("Nowhere")

    def _say(self, text: str) -> web.Response:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        return web.json_response({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage})


def read_search() -> dict[str, Any]:
    """The built-in search, wherever it is written to."""
    spec: dict[str, Any] = yaml.safe_load((ROOT / "specs/search.yaml").read_text("utf-8").replace("../", f"{ROOT}/"))
    return spec


def write_spec(folder: Path, port: int) -> Path:
    """The built-in search with its tool and a judge behind the server."""
    spec = read_search()
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    target = {
        "kind": "http",
        "url": f"http://127.0.0.1:{port}/search",
        "method": "POST",
        "result": "{{ response.found }}",
    }
    limits = {"timeout_s": 2, "retries": 2, "max_concurrency": 16}
    tool = {"name": "search", "description": "Find passages.", "inputSchema": schema, "target": target}
    spec["tools"][0] = tool | {"limits": limits, "idempotent": True}
    endpoint = {"url": f"http://127.0.0.1:{port}/judge/v1", "model": "judge", "timeout_s": 3}
    judge = {"kind": "judge", "name": "style", "endpoints": [endpoint], "weight": 0.2, "timeout_s": 12, "cache": None}
    spec["rewards"].append(judge | {"unscorable": "drop_term"})
    path = folder / "spec.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


ENCYCLOPEDIA = "{path: 'builtin:encyclopedia/%s', prompt: question, answer: answer, kind: kind}"
ON_THIS_MACHINE = [
    "model.path=builtin:tiny",
    "engine={kind: local}",
    "rollout.max_total_tokens=320",
    "rollout.max_new_tokens=72",
    "train.mini_batches=1",
    "train.learning_rate=3e-4",
    f"data.train={ENCYCLOPEDIA % 'train'}",
    f"data.eval={ENCYCLOPEDIA % 'heldout'}",
]
"""Of a spec for GPUs that searches."""
LEAST = ["train.prompts_per_step=2", "rollout.num_generations=4"]


def write_search(folder: Path, name: str, target: dict[str, Any] | None, mcp: str) -> Path:
    """The built-in search whose tool asks something else; without a target, an MCP server."""
    spec = read_search()
    tool = yaml.safe_load((ROOT / "tool_specs/search.yaml").read_text("utf-8"))
    shown = {key: tool[key] for key in ("name", "description", "inputSchema")}  # without its cache
    asked = {"mcp": {"url": mcp}} if target is None else shown | {"target": target}
    spec["tools"][0] = asked | {"limits": {"timeout_s": 5, "retries": 2}, "idempotent": True}
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def list_specs(folder: Path, port: int, mcp: str) -> dict[str, list[str]]:
    """Arguments of `rlf chaos` by name."""
    init = [sys.executable, "-m", "rlf", "init", "judged", "--template", "judge"]
    subprocess.run(init, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    asked = {"endpoints": [{"url": f"http://127.0.0.1:{port}/model/v1", "model": "m"}], "prompt": "{{ query }}"}
    searches = {
        "by_http": write_spec(folder, port),
        "by_mcp": write_search(folder, "by_mcp", None, mcp),
        "by_model": write_search(folder, "by_model", {"kind": "model", **asked}, mcp),
        "by_agent": write_search(
            folder, "by_agent", {"kind": "agent", **asked, "tools": [f"{ROOT}/tool_specs/calculator.yaml"]}, mcp
        ),
    }
    evaluated = ["eval.limit=4"]
    return {
        "writing_judge": [str(ROOT / "specs/writing_judge.yaml")],
        "template": [str(folder / "judged/specs/judged.yaml"), *evaluated],
        **{
            name: [str(ROOT / f"specs/{name}.yaml"), *ON_THIS_MACHINE, *evaluated]
            for name in ("rl_factory_qwen3_4b", "search_r1_qwen25_3b")
        },
        **{name: [str(path), *evaluated] for name, path in searches.items()},
    }


def try_specs(server: Server, wanted: list[str], faults: str) -> None:
    """Prints the verdicts of each spec under the faults of servers."""
    os.environ["RETRIEVE_URL"] = f"http://127.0.0.1:{server.port}/retrieve"
    serve = ["tools", "serve", "--mcp", "http", "--port", "0", str(ROOT / "tool_specs/search.yaml")]
    with (
        tempfile.TemporaryDirectory() as place,
        subprocess.Popen(
            [sys.executable, "-m", "rlf", *serve],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=partial(die_with, os.getpid()),  # also where this process is killed
        ) as mcp,
    ):
        assert mcp.stderr is not None, "a server without stderr"
        try:
            address = next(word for line in mcp.stderr for word in line.split() if word.startswith("http://"))
            for name, arguments in list_specs(Path(place), server.port, address.rstrip(".,;")).items():
                if wanted and name not in wanted:
                    continue
                command = [sys.executable, "-m", "rlf", "chaos", *arguments, *LEAST, "--only", faults, "--json"]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # it notes each verdict
                ordeals = json.loads(done.stdout or "{}").get("data", {}).get("ordeals", ())
                for one in ordeals:
                    words = "; ".join(one["broken"]) or one["why"]
                    print(f"{name}: {one['fault']}: {one['verdict']}" + (f" ({words})" if words else ""), flush=True)
                print(f"{name}: exit code {done.returncode}", flush=True)
        finally:
            mcp.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults, or specs, with commas")
    parser.add_argument("--specs", action="store_true")
    parser.add_argument("--faults", default="service errors,service drops,service hangs,service garbage")
    given = parser.parse_args()
    wanted = [name for name in given.only.split(",") if name]
    server, num_lost, failed = Server(), 0, 0
    if given.specs:
        try_specs(server, wanted, given.faults)
        return
    wanted = wanted or list(FAULTS)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        spec, runs = write_spec(folder, server.port), folder / "runs"
        for name in wanted:
            server.fault, server.struck = name, dict.fromkeys(server.struck, 0)
            begun = time.monotonic()
            with _Process(["run", str(spec), *SMALL], runs, {}) as process:
                code, run_id, said = process.wait(300), process.run_id, process.said
            took_s, broken = time.monotonic() - begun, [] if code == 0 else [f"exit code {code}: {said}"]
            if run_id is not None:
                with open_reader(runs) as reader:
                    broken += _look(reader, run_id)
                    failed = sum(one.reward is None for one in reader.trajectories(run_id))
            url = f"http://127.0.0.1:{server.port}/model/v1"
            command = [sys.executable, "-m", "rlf", "eval", str(spec), "eval.limit=6", "--endpoint", url]
            command += ["--model", "m", "--runs", str(runs), "--json"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
                end = f"ended with {done.returncode}"
            except subprocess.TimeoutExpired:
                end = "waits for longer than 120 s"
            num_lost += bool(broken)
            print(
                f"{name:8} {'LOST: ' + '; '.join(broken) if broken else 'nothing lost'}; {took_s:.0f} s; without a "
                f"reward {failed}; met by tool {server.struck['tool']}, judge {server.struck['judge']}, model "
                f"{server.struck['model']}; the evaluation {end}",
                flush=True,
            )
        print(_verify(runs) or "rlf runs verify: whole")
    print(f"{num_lost} of {len(wanted)} lost something")


if __name__ == "__main__":
    main()
