"""How time and memory of the local engine grow, and what slow tools cost: curves, with straight lines beside them.

    python benchmarks/growth.py heavy [--steps 6] [--rounds 3]     training beside tools with a heavy tail
    python benchmarks/growth.py trajectories [--micro-batch 2048]  CPU seconds and memory by trajectories of a step
    python benchmarks/growth.py memory [--steps 40]                memory in use by steps that are over
    python benchmarks/growth.py calls [--most 10000]               CPU seconds and memory by tool calls in flight
    python benchmarks/growth.py lengths [--steps 100]              shares of long tasks with late groups
    python benchmarks/growth.py update [--model M]                 CPU seconds of updates, beginnings shared and not
    python benchmarks/growth.py inputs                             CPU seconds and memory by rows, tools and steps

`heavy` trains the search spec with a search that takes lognormal time (median 0.2 s, sigma 0.8) and hangs in one call
of a hundred until its timeout of 5 s. Each side trains so many steps from the same weights; the sides take turns.
`barrier` returns the results of a turn when all of its calls are over, with the same sampler; `tools at once` is the
same pipeline with a search that takes no time, the model's own time.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import logging
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
CODE = """import asyncio, os, random
from rlf.builtin.encyclopedia.search import search as find
async def search(query: str):
    if os.environ.get("GROWTH_SLOW"):
        await asyncio.sleep(60 if random.random() < 0.01 else 0.2 * random.lognormvariate(0, 0.8))
    return find(query)
"""
SIDES = {
    "barrier": ["rollout.schedule=clock"],
    "clock": ["rollout.schedule=clock"],
    "logical": [],
    "invariant": ["rollout.schedule=invariant"],
    "pipelined, late groups": ["rollout.schedule=clock", "+train.staleness=1", "+rollout.oversample=2"],
    "the same, tools at once": ["rollout.schedule=clock", "+train.staleness=1", "+rollout.oversample=2"],
}


LENGTHS, UNIT_S = (1, 2, 4, 16), 0.01
NUM_QUESTIONS = 512


class BarrierTools:
    """Tools whose results come when every open trajectory has its own: a barrier per turn."""

    def __init__(self, tools, num_open):
        self.tools, self.num_open = tools, num_open
        self.running, self.returned, self.release = Counter(), set(), asyncio.Event()

    @property
    def descriptions(self):
        return self.tools.descriptions

    async def invoke(self, call, *, trajectory_id):
        release = self.release
        self.running[trajectory_id] += 1
        result = await self.tools.invoke(call, trajectory_id=trajectory_id)
        self.running[trajectory_id] -= 1
        if not self.running[trajectory_id]:
            self.returned.add(trajectory_id)
        self.let_go()
        await release.wait()
        return result

    def let_go(self):
        if len(self.returned) >= self.num_open:
            self.release.set()
            self.release, self.returned = asyncio.Event(), set()

    async def end_trajectory(self, trajectory_id):
        await self.tools.end_trajectory(trajectory_id)
        self.num_open -= 1
        self.let_go()


def spec_in(folder: Path) -> Path:
    (folder / "slow.py").write_text(CODE)
    search = yaml.safe_load((ROOT / "tool_specs" / "search.yaml").read_text())
    search |= {"target": {"kind": "python", "callable": "slow.py:search"}, "limits": {"timeout_s": 5}}
    search = {key: value for key, value in search.items() if key not in ("cache", "tests")}
    spec = folder / "spec.yaml"
    tools = [search, str(ROOT / "tool_specs" / "calculator.yaml")]
    spec.write_text(yaml.safe_dump({"extends": str(ROOT / "specs" / "search.yaml"), "tools": tools}))
    return spec


class _Allocated(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple(zip(_names, [ctypes.c_size_t] * len(_names), strict=True))


def mb_in_use():
    """What malloc has given out, without what it keeps free."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallinfo2.restype = _Allocated
    found = libc.mallinfo2()
    return (found.uordblks + found.hblkhd) / 1e6


class Steps:
    """A view that notes when steps were over, on the clock and in CPU seconds, and the MB in use then."""

    def __init__(self):
        self.ended, self.metrics, self.used_mb = [], [], []

    def __call__(self, info):
        return self.take

    def take(self, event):
        if type(event).__name__ == "StepFinished":
            self.ended.append((time.perf_counter(), time.process_time()))
            self.metrics.append(event.metrics)
            self.used_mb.append(mb_in_use())


def train(spec: Path, overrides: list[str]) -> Steps:
    from rlf.runs.start import run

    steps = Steps()
    with tempfile.TemporaryDirectory() as runs:
        run([spec], overrides, runs_folder=Path(runs), view=steps, command=["growth"])
    return steps


def heavy(arguments):
    from rlf.training.harness import Harness

    plain = Harness.setting
    num_open = arguments.tasks * 8

    def with_barrier(self, policy, sampling):
        return replace(plain(self, policy, sampling), tools=BarrierTools(self.tools, num_open))

    sizes = [f"train.steps={arguments.steps}", f"train.prompts_per_step={arguments.tasks}", "~data.eval", "~eval"]
    sides = {name: SIDES[name] for name in arguments.sides.split(";")} if arguments.sides else SIDES
    walls, cpus = {name: [] for name in sides}, {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, overrides in sides.items():
            os.environ["GROWTH_SLOW"] = "" if name.endswith("at once") else "1"
            Harness.setting = with_barrier if name == "barrier" else plain
            random.seed(0)
            with tempfile.TemporaryDirectory() as folder:
                steps = train(spec_in(Path(folder)), [*sizes, *overrides])
            (first_s, first_cpu_s), (last_s, last_cpu_s) = steps.ended[0], steps.ended[-1]
            walls[name].append((last_s - first_s) / (arguments.steps - 1))
            cpus[name].append((last_cpu_s - first_cpu_s) / (arguments.steps - 1))
    Harness.setting = plain
    print(f"{'':26} {'s a step':>9} {'CPU s':>7} {'faster than barrier':>20}   medians of {arguments.rounds}")
    for name in sides:
        ratios = [one / other for one, other in zip(walls.get("barrier", walls[name]), walls[name], strict=True)]
        spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{name:26} {median(walls[name]):9.2f} {median(cpus[name]):7.2f} {spread:>20}")


def trajectories(arguments):
    """A process for each size, so that its peak memory is its own."""
    print(f"{'trajectories':>12} {'CPU s':>8} {'ms each':>8} {'peak MB':>8} {'MB in use':>9}")
    num = 16
    while num <= arguments.most:
        own = ["--tasks", str(num // 8), "--micro-batch", str(arguments.micro_batch)]
        command = [sys.executable, __file__, "step", *own]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        cpu_s, peak_mb, used_mb = map(float, done.stdout.split()[-3:])
        print(f"{num:12} {cpu_s:8.2f} {1000 * cpu_s / num:8.2f} {peak_mb:8.0f} {used_mb:9.0f}", flush=True)
        num *= 4


def update(arguments):
    """Updates of the search spec by turns, common beginnings computed once and each trajectory by itself."""
    from rlf.engines.local.update import Updater

    plain, taken = Updater.update, []

    def timed(self, *args):
        started = time.process_time()
        metrics = plain(self, *args)
        taken.append(time.process_time() - started)
        return metrics

    Updater.update = timed
    found = {"true": [], "false": []}
    fixed = [f"train.steps={arguments.steps}", "train.learning_rate=1e-9", "~data.eval", "~eval"]
    fixed += [f"model.path={arguments.model}"] if arguments.model else []
    for _ in range(arguments.rounds):
        for shared, updates in found.items():
            train(ROOT / "specs" / "search.yaml", [*fixed, f"+engine.share_prefixes={shared}"])
            updates += taken[1:]
            taken.clear()
    for shared, updates in found.items():
        print(f"share_prefixes: {shared:5} {median(updates):.3f} CPU s ({min(updates):.3f} to {max(updates):.3f})")
    print(f"shared / plain: {median(found['true']) / median(found['false']):.2f}")


def memory(arguments):
    """What the process has in use after steps of 4 questions, and what is resident without what malloc has free."""
    from rlf.runs.start import run

    def look(event):
        if type(event).__name__ == "StepFinished" and event.step % 10 == 0:
            gc.collect()
            used_mb = mb_in_use()
            ctypes.CDLL("libc.so.6").malloc_trim(0)
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            print(f"{event.step:6} {used_mb:10.1f} {resident / 1e6:12.0f}", flush=True)

    print(f"{'step':>6} {'MB in use':>10} {'MB resident':>12}")
    sizes = [f"train.steps={arguments.steps}", "train.prompts_per_step=4", "~data.eval", "~eval"]
    with tempfile.TemporaryDirectory() as runs:
        run([ROOT / "specs" / "search.yaml"], sizes, runs_folder=Path(runs), view=lambda info: look, command=["growth"])


def step(arguments):
    """CPU seconds of a step, the peak memory, and what is in use behind the last.

    The mean of a second pass through the questions, which are the same for every size, by a policy that stays as it is.
    Python looks for garbage as in a command, which leaves out what was loaded.
    """
    num_steps = NUM_QUESTIONS // arguments.tasks
    sizes = [f"train.steps={2 * num_steps}", f"train.prompts_per_step={arguments.tasks}", "train.learning_rate=1e-9"]
    sizes += [f"data.train.limit={NUM_QUESTIONS}", "~data.eval", "~eval"]
    sizes += [f"train.micro_batch_tokens={arguments.micro_batch}"]
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_in(Path(folder))
        as_command()
        steps = train(spec, [*sizes, f"+rollout.max_concurrency={arguments.slots}"])
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print((steps.ended[-1][1] - steps.ended[num_steps - 1][1]) / num_steps, peak_mb, steps.used_mb[-1])


def as_command():
    """Python looks for garbage as it does in rlf's commands."""
    import rlf.engines.local.engine
    import rlf.runs.start  # noqa: F401  # loaded before, as the first look in a command finds it

    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, *gc.get_threshold()[1:])


def inputs(arguments):
    """Commands over ten times as much of one thing: rows and hidden tools that are checked, and steps that are run."""
    print(f"{'':24} {'CPU s':>8} {'times':>6} {'peak MB':>8}   medians of {arguments.rounds}")
    with tempfile.TemporaryDirectory() as folder:
        for name, write, sizes in (
            ("rows, rlf check", many_rows, (20_000, 200_000)),
            ("tools, rlf check", many_tools, (30, 300)),
            ("steps, rlf run", None, (40, 400)),
        ):
            first_s = None
            for num in sizes:
                if write:
                    words = ["check", str(write(Path(folder), num))]
                else:
                    words = ["run", str(ROOT / "specs" / "search.yaml"), f"train.steps={num}"]
                    words += ["train.prompts_per_step=4", "~data.eval", "~eval"]
                found = [command_costs(words, Path(folder)) for _ in range(arguments.rounds)]
                cpu_s, peak_mb = (median(values) for values in zip(*found, strict=True))
                first_s = first_s or cpu_s
                print(f"{name:16} {num:7,} {cpu_s:8.2f} {cpu_s / first_s:6.1f} {peak_mb:8.0f}", flush=True)


def many_rows(folder: Path, num: int) -> Path:
    rows = folder / f"rows-{num}.jsonl"
    row = '{{"id": "q{0}", "question": "What is {0} plus 1?", "answer": "{1}", "kind": "sum"}}\n'
    rows.write_text("".join(row.format(number, number + 1) for number in range(num)))
    return a_spec(folder / f"rows-{num}.yaml", {"data": {"train": {"path": str(rows)}}})


def many_tools(folder: Path, num: int) -> Path:
    """Besides those of the spec, which alone the tasks are shown, since the model's context holds no more."""
    (folder / "many.py").write_text("def tool(query: str) -> str:\n    return query\n")
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tool = {"description": "Returns the query.", "inputSchema": schema}
    tool |= {"target": {"kind": "python", "callable": "many.py:tool"}, "hidden": True}
    tools = [str(ROOT / "tool_specs" / f"{name}.yaml") for name in ("search", "calculator")]
    return a_spec(folder / f"tools-{num}.yaml", {"tools": tools + [tool | {"name": f"t{n}"} for n in range(num)]})


def a_spec(path: Path, parts: dict) -> Path:
    path.write_text(yaml.safe_dump({"extends": str(ROOT / "specs" / "search.yaml"), **parts}))
    return path


def command_costs(words: list[str], folder: Path) -> tuple[float, float]:
    """CPU seconds and peak MB of an `rlf` command that must end well."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-m", "rlf", *words], cwd=folder, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            output.seek(0)
            sys.exit(f"rlf {' '.join(words)}: {output.read().decode()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def calls(arguments):
    """Calls of an asynchronous tool that all are in flight at once: it returns when the last has begun."""
    from rlf.runs.plans import check_spec
    from rlf.tools.execution.executor import Executor
    from rlf.types.tool import ToolCall

    with tempfile.TemporaryDirectory() as folder:
        spec = check_spec([spec_in(Path(folder))], []).plan.spec
        print(f"{'in flight':>9} {'CPU s':>8} {'us each':>8} {'KB each':>8}")
        for num in (10, 100, 1000, 10_000):
            if num <= arguments.most:
                cpu_s, size_kb = asyncio.run(in_flight(Executor, spec.tools, ToolCall, num))
                print(f"{num:9} {cpu_s:8.3f} {1e6 * cpu_s / num:8.1f} {size_kb / num:8.1f}")


def lengths(arguments):
    """Tasks whose groups take 1, 2, 4 or 16 times as long: their shares of what is trained on, in groups."""
    draw = random.Random(0)
    times = [draw.choice(LENGTHS) for _ in range(8 * arguments.tasks * arguments.steps)]
    print(f"{'':34}" + "".join(f"{f'{length} x':>8}" for length in LENGTHS) + f"{'skipped':>9}")
    ways = {"the first whole groups alone": {"late": "drop", "forgets": True}}
    for late in ("keep", "drop"):
        ways[f"oversample 1.5, late: {late}"] = {"late": late, "oversample": 1.5}
        ways[f"deadline of 3, late: {late}"] = {"late": late, "oversample": 1.5, "deadline_s": 3 * UNIT_S}
    for name, way in ways.items():
        taken, drawn, left = asyncio.run(take_groups(times, arguments, **way))
        share = Counter(times[at] for at in taken)
        shares = "".join(f"{share[length] / len(taken):8.1%}" for length in LENGTHS)
        print(f"{name:34}{shares}{drawn - len(taken) - len(left):9}", flush=True)
    share = Counter(times[:drawn])
    print(f"{'in the data':34}" + "".join(f"{share[length] / drawn:8.1%}" for length in LENGTHS))


async def take_groups(times, arguments, *, late, forgets=False, oversample=1.5, deadline_s=None):
    """Positions of the tasks that steps took, how many were drawn, and those that are still under way."""
    from rlf.spec.models import RolloutSpec, TrainSpec
    from rlf.training.stragglers import Stragglers
    from tests.training.trajectories import scored

    async def play(position, step, again, cut_off):
        await asyncio.sleep(times[position] * UNIT_S)
        return [scored(str(position), 1.0)]

    rollout = RolloutSpec.model_validate({"oversample": oversample, "deadline_s": deadline_s, "late": late})
    train = TrainSpec.model_validate({"algorithm": {"kind": "grpo"}, "prompts_per_step": arguments.tasks})
    stragglers, taken, cursor, left = Stragglers(play, rollout, train, lambda event: None), [], 0, ()
    for step in range(1, arguments.steps + 1):
        found = await stragglers.take(step, cursor, () if forgets else left)
        taken += [int(item.trajectory.task.id) for item in found.kept]
        cursor, left = found.cursor, () if forgets else found.late
    await stragglers.close(arguments.steps + 1)
    return taken, cursor, left


async def in_flight(executor_class, tools, call_class, num):
    os.environ["GROWTH_SLOW"] = ""
    limits = tools[0].limits.model_copy(update={"max_concurrency": num})
    executor = executor_class([tools[0].model_copy(update={"limits": limits})], seed=0, max_concurrency=None)
    async with executor:
        await executor.invoke(call_class("search", {"query": "first"}), trajectory_id="first")  # reads the passages
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        as_command()
        started = time.process_time()
        made = [executor.invoke(call_class("search", {"query": f"q{n}"}), trajectory_id=str(n)) for n in range(num)]
        await asyncio.gather(*made)
        return time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "what", choices=["heavy", "trajectories", "memory", "calls", "lengths", "update", "inputs", "step"]
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=16, help="of a step, with 8 trajectories each")
    parser.add_argument("--slots", type=int, default=256, help="trajectories sampled at once")
    parser.add_argument("--most", type=int, default=4096)
    parser.add_argument("--micro-batch", type=int, default=2048, help="tokens of one")
    parser.add_argument("--model", help="a folder with weights; without: those of the spec")
    parser.add_argument("--sides", default="", help="names separated by semicolons")
    logging.disable(logging.WARNING)
    parsed = parser.parse_args()
    globals()[parsed.what](parsed)
