"""Where the CPU time of a step, of a call and of a check goes, with the floor beside it.

    python benchmarks/where.py step --model M    parts of a step of specs/search.yaml; floor: its matrix products alone
    python benchmarks/where.py call              a call of an HTTP tool by package; floor: raw aiohttp
    python benchmarks/where.py check             `rlf check` by package; floor: what it must import
    python benchmarks/where.py walk              rlf's frames from `rlf run` to the gradient, functions of a call

Figures are CPU milliseconds: the median of `--rounds` for parts of a step and calls, the least for whole commands.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
SPEC = ROOT / "specs" / "search.yaml"
PACKAGES = ("rlf", "aiohttp", "asyncio", "pydantic", "pydantic_core", "typer", "yaml")


class Stopwatch:
    """CPU milliseconds of named parts, each without those that run inside it."""

    def __init__(self):
        self.spent, self.running = defaultdict(float), []

    def watch(self, owner, name, part):
        plain = getattr(owner, name)

        def watched(*args, **keys):
            started = time.thread_time()
            self.running.append(0.0)
            try:
                return plain(*args, **keys)
            finally:
                taken = time.thread_time() - started
                self.spent[part] += 1000 * (taken - self.running.pop())
                if self.running:
                    self.running[-1] += taken

        setattr(owner, name, watched)


def step(arguments):
    import torch
    from two_samplers import Player

    from rlf.engines.local import attention, decode
    from rlf.engines.local.model import PolicyModel
    from rlf.engines.local.update import Updater
    from rlf.training.batch import make_batch

    watch, fed = Stopwatch(), []
    player = Player(arguments.model, 16)
    updater = Updater(player.model, player.spec.train, temperature=1.0, seed=0, share_prefixes=True)
    plain_hidden = PolicyModel.hidden

    def noting(model, tokens_BT, positions_BT=None):
        fed.append(tokens_BT.numel())
        return plain_hidden(model, tokens_BT, positions_BT)

    PolicyModel.hidden = noting
    watch.watch(PolicyModel, "hidden", "sampling: forward passes")
    watch.watch(PolicyModel, "logits", "sampling: forward passes")
    watch.watch(decode, "ragged_layout", "sampling: layout and masks")
    watch.watch(decode.Decoder, "_append", "sampling: draws")
    watch.watch(decode.Decoder, "_share", "sampling: keys of equal rows")
    for name in ("activate", "deactivate", "settle"):
        watch.watch(attention.Slots, name, "sampling: rows that move")
    watch.watch(decode.Decoder, "tick", "sampling: rest of a tick")
    found = defaultdict(list)

    async def play():
        async with player.harness.opened(), player.new_host() as host:
            for number in range(arguments.rounds + 1):
                watch.spent.clear()
                fed.clear()
                loop_s = time.thread_time()
                scored = await player.play(host, player.rollouts(number))
                parts = dict(watch.spent) | {"sampling: event loop": 1000 * (time.thread_time() - loop_s)}
                parts["floor of sampling"] = sum(matmuls_ms(player.model, num) for num in fed)
                started, batch = time.process_time(), make_batch(scored)
                fed.clear()
                updater.update(batch, 1)
                parts["update"] = 1000 * (time.process_time() - started)
                parts["floor of an update"] = sum(3 * matmuls_ms(player.model, num) for num in fed)
                for name, taken in parts.items() if number else ():
                    found[name].append(taken)

    torch.set_num_threads(1)
    asyncio.run(play())
    for name, taken in sorted(found.items(), key=lambda item: ("floor" in item[0], -median(item[1]))):
        print(f"{name:32}{median(taken):8.1f}")
    print(f"{'a step':32}{sum(median(taken) for name, taken in found.items() if 'floor' not in name):8.1f}")


def matmuls_ms(model, num_tokens):
    """Of every weight with so many tokens, the head's with at most 128."""
    import torch

    with torch.inference_mode():
        weights = [m.weight for m in model.backbone.modules() if type(m) is torch.nn.Linear]
        pairs = [(torch.ones(num_tokens, w.shape[1]), w) for w in weights]
        pairs.append((torch.ones(min(num_tokens, 128), model.head.weight.shape[1]), model.head.weight))
        started = time.thread_time()
        for values, weight in pairs:
            torch.nn.functional.linear(values, weight)
        return 1000 * (time.thread_time() - started)


def call(arguments):
    import http_tools

    from rlf.tools import Executor
    from rlf.types import ToolCall

    server = subprocess.Popen([sys.executable, "-c", http_tools.SERVER], stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{int(server.stdout.readline())}/ask"
    target = {"kind": "http", "url": url, "method": "POST", "response": "result"}
    mapping = {"name": "ask", "description": "A.", "inputSchema": http_tools.QUERY, "target": target}
    profile = cProfile.Profile(time.thread_time)

    async def main():
        async with Executor([http_tools._declared(mapping | {"limits": {"max_concurrency": 64}})]) as executor:

            async def tool(number):
                await executor.invoke(ToolCall("ask", {"query": f"q{number}"}), trajectory_id=f"t{number}")

            await http_tools.speed(tool, 500, 64)
            profile.enable()
            await http_tools.speed(tool, 2000, 64)
            profile.disable()
        return await http_tools.compare(url, arguments.rounds, 1000, 64)

    try:
        rounds = asyncio.run(main())
    finally:
        server.terminate()
    spent = Counter()
    for (path, _, _), (_, _, own_s, _, _) in pstats.Stats(profile).stats.items():
        spent["/".join(path.split("/rlf/")[-1].split("/")[:2]) if "/rlf/" in path else package_of(path)] += own_s
    print("share of a call of the HTTP tool, with the profiler's own cost:")
    for name, own_s in spent.most_common(14):
        print(f"{name:32}{own_s / spent.total():8.1%}")
    for name, speeds in rounds.items():
        print(f"{name:32}{median(speed.cpu_us for speed in speeds) / 1000:8.3f}")


def package_of(path):
    """The package that a file is of; `built in` for what is not written in Python."""
    after = path.split("site-packages/")[-1].split("python3.11/")[-1]
    return after.split("/")[0] if "/" in path else "built in"


_NOTE_IMPORTS = """
import sys, time, importlib._bootstrap_external as loaders
spent, inner = {}, []
def note(kind):
    plain = kind.exec_module
    def exec_module(self, module):
        started = time.process_time()
        inner.append(0.0)
        try:
            return plain(self, module)
        finally:
            taken = time.process_time() - started
            name = module.__name__.partition(".")[0]
            spent[name] = spent.get(name, 0.0) + taken - inner.pop()
            if inner:
                inner[-1] += taken
    kind.exec_module = exec_module
note(loaders._LoaderBasics)
note(loaders.ExtensionFileLoader)
sys.argv = ["rlf", "check", sys.argv[1]]
from rlf.cli.start import main
try:
    main()
except SystemExit:
    pass
print(*(f"{name}={1000 * taken:.2f}" for name, taken in spent.items()), file=sys.stderr)
"""


def check(arguments):
    imports, whole, floor = {}, [], []
    for _ in range(arguments.rounds):
        command = [sys.executable, "-c", _NOTE_IMPORTS, str(SPEC)]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stderr.split("\n")[-2].split()
        for name, taken in (word.split("=") for word in words):
            name = f"import {name if name in PACKAGES else 'others'}"
            imports.setdefault(name, []).append(float(taken))
        whole.append(cpu_ms([sys.executable, "-m", "rlf", "check", str(SPEC)]))
        floor.append(cpu_ms([sys.executable, "-c", "import typer, pydantic, yaml; pydantic.BaseModel"]))
    sums = {name: sum(taken) / arguments.rounds for name, taken in imports.items()}
    for name, taken in sorted(sums.items(), key=lambda item: -item[1]):
        print(f"{name:32}{taken:8.1f}")
    print(f"{'start of Python, models, reading':32}{min(whole) - sum(sums.values()):8.1f}")
    print(f"{'rlf check':32}{min(whole):8.1f}\n{'import typer, pydantic, yaml':32}{min(floor):8.1f}")


def walk(arguments):
    import http_tools
    import torch

    from rlf.cli.start import main
    from rlf.tools import Executor
    from rlf.types import ToolCall

    def show(what, frames):
        names = [f"{path.split('/rlf/')[-1]}:{name}" for path, name in frames if "/rlf/" in path]
        print(f"{what}: {len(names)}", *names, sep="\n  ")

    server = subprocess.Popen([sys.executable, "-c", http_tools.SERVER], stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{int(server.stdout.readline())}/ask"
    target = {"kind": "http", "url": url, "method": "POST", "response": "result"}
    mapping = {"name": "ask", "description": "A.", "inputSchema": http_tools.QUERY, "target": target}
    entered = {}

    async def invoke():
        async with Executor([http_tools._declared(mapping)]) as executor:
            for number in range(3):  # the first one opens what later ones use
                if number == 2:
                    sys.setprofile(lambda frame, event, _: event == "call" and entered.setdefault(at(frame)))
                await executor.invoke(ToolCall("ask", {"query": f"q{number}"}), trajectory_id=f"t{number}")
            sys.setprofile(None)

    def at(frame):
        return frame.f_code.co_filename, frame.f_code.co_qualname

    def grad(*_, **__):
        """A worker calls it; for that the model's thread waits, for that a task, and for that the main thread."""
        tops, threads = (
            sys._current_frames(),
            {thread.name.partition("_")[0]: thread for thread in threading.enumerate()},
        )
        main, model, own = (
            [frame for frame, _ in traceback.walk_stack(tops[thread.ident])][::-1]
            for thread in (threading.main_thread(), threads["rlf-model"], threading.current_thread())
        )
        loop = next(frame.f_locals["self"] for frame in main if frame.f_code.co_name == "run_forever")
        tasks = (
            each for task in asyncio.all_tasks(loop) if (stack := awaited(task))[-1][1] != "sleep" for each in stack
        )
        frames = [*map(at, main), *tasks, *map(at, model), *map(at, own[:-1])]  # without this function
        show("frames from `rlf run` to the gradient", frames)
        sys.stdout.flush()
        os._exit(0)

    def awaited(task):
        stack, coroutine = [], task.get_coro()
        while hasattr(coroutine, "cr_code"):
            stack.append((coroutine.cr_code.co_filename, coroutine.cr_code.co_qualname))
            coroutine = coroutine.cr_await
        return stack

    try:
        asyncio.run(invoke())
    finally:
        server.terminate()
    show("functions of a call of an HTTP tool", entered)
    torch.autograd.grad = torch.Tensor.backward = grad
    with tempfile.TemporaryDirectory() as folder:
        sys.argv[1:] = [
            "run",
            str(SPEC),
            "train.steps=1",
            "eval.limit=2",
            "engine.threads=1",
            "--runs",
            folder,
            "--json",
        ]
        main()


def cpu_ms(command):
    """Of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["step", "call", "check", "walk"])
    parser.add_argument("--model", help="a folder with trained weights, for `step`")
    parser.add_argument("--rounds", type=int, default=5)
    parsed = parser.parse_args()
    globals()[parsed.what](parsed)
