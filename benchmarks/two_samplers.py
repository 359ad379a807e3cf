"""Sampling with one policy host beside four ways of using a second core for it.

The step is that of `specs/search.yaml`: 16 questions, 8 trajectories each. The ways take turns in one run, and play the
same questions; where there are two hosts, each has half of the groups:

- `one`: one host, whose ticks run on a thread beside the event loop; what rlf does.
- `threads`: two hosts in this process, a thread each.
- `server`: the second host in a process of its own, which takes turns' tokens and returns samples; tools, parsing and
  rewards stay in this process.
- `processes`: two processes with everything of their own, tools and rewards too. The work of an update is not counted
  as shared by it. An upper bound, for tools of a run may keep state and have limits that hold for all rollouts.

Printed are the medians of wall seconds, CPU seconds of each process, the ratio of a whole step, sampling and update, to
that of `one` by the clock, and the ratio that two quiet cores could reach by CPU seconds: no process has less than its
own.

    python benchmarks/two_samplers.py --model runs/ID/model [--rounds 9]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing as mp
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

import torch

from rlf.chat.encoding import load_tokenizer
from rlf.core.identity import derive_seed
from rlf.engines.engine import load_inputs
from rlf.engines.local.host import PolicyHost
from rlf.engines.local.model import load_model
from rlf.engines.local.update import Updater
from rlf.rollout.collect import collect
from rlf.rollout.rollout import Rollout
from rlf.runs.plans import check_spec
from rlf.spec.models import Schedule
from rlf.training.batch import make_batch
from rlf.training.harness import build_harness

ROOT = Path(__file__).parents[1]
GENERATIONS = 8
WAYS = ("one", "threads", "server", "processes")


class Player:
    """Model, tools and rewards of one process."""

    def __init__(self, model_path, num_prompts):
        torch.set_num_threads(1)
        plan = check_spec([ROOT / "specs" / "search.yaml"], []).plan
        self.spec, self.tasks, self.num_prompts = plan.spec, load_inputs(plan).train, num_prompts
        self.model = load_model(model_path, dtype=torch.float32, device=torch.device("cpu"))
        self.harness = build_harness(self.spec, load_tokenizer(model_path), lambda *_: None)

    def new_host(self):
        num_slots, max_tokens = self.num_prompts * GENERATIONS, self.harness.limits.max_total_tokens
        decode = self.harness.chat.decode
        return PolicyHost(
            self.model, decode, num_slots=num_slots, max_tokens=max_tokens, schedule=Schedule.LOGICAL
        )  # fmt: skip

    def rollouts(self, number, half=slice(None)):
        tasks = self.tasks[number * self.num_prompts : (number + 1) * self.num_prompts][half]
        return [
            Rollout(f"{number}/{task.id}/{k}", task, k, derive_seed(number, task.id, k))
            for task in tasks
            for k in range(GENERATIONS)
        ]

    async def play(self, policy, rollouts):
        return await collect(
            rollouts, self.harness.setting(policy, self.harness.training), self.harness.reward, step=1
        )  # fmt: skip


class Split:
    """A policy of several, each of which has an equal part of the groups."""

    def __init__(self, policies):
        self.policies, self.policy_of = policies, {}

    def open(self, ids):
        size = -(-len(ids) // len(self.policies))
        for at, policy in enumerate(self.policies):
            part = ids[at * size : (at + 1) * size]
            self.policy_of |= dict.fromkeys(part, policy)
            policy.open(part)

    async def sample(self, request):
        return await self.policy_of[request.trajectory_id].sample(request)

    def release(self, id_):
        self.policy_of[id_].release(id_)


class Remote:
    """The policy of another process. What is sent in one round of the event loop is one message."""

    def __init__(self, connection):
        self.connection, self.loop = connection, asyncio.get_running_loop()
        self.outbox, self.replies = [], {}
        self.loop.add_reader(connection.fileno(), self.take)

    def post(self, item):
        if not self.outbox:
            self.loop.call_soon(self.flush)
        self.outbox.append(item)

    def flush(self):
        items, self.outbox = self.outbox, []
        self.connection.send(items)

    def take(self):
        while self.connection.poll():
            for id_, sample in self.connection.recv():
                self.replies.pop(id_).set_result(sample)

    def open(self, ids):
        self.post(("open", ids))

    def release(self, id_):
        self.post(("release", id_))

    async def sample(self, request):
        self.replies[request.trajectory_id] = reply = self.loop.create_future()
        self.post(("sample", request))
        return await reply


def work(connection, model_path, num_prompts):
    """The second process: one collection after another, as a server of samples or with tools of its own."""
    player = Player(model_path, num_prompts)
    connection.send("ready")
    while (asked := connection.recv()) is not None:
        started = time.process_time()
        answer = asyncio.run(play_half(player, asked) if isinstance(asked, int) else serve(player, connection))
        connection.send((answer, time.process_time() - started))


async def play_half(player, number):
    async with player.harness.opened(), player.new_host() as host:
        return await player.play(host, player.rollouts(number, slice(player.num_prompts // 2, None)))


async def serve(player, connection):
    loop, inbox, outbox, tasks = asyncio.get_running_loop(), asyncio.Queue(), [], set()

    def listen():
        while (items := connection.recv()) is not None:
            loop.call_soon_threadsafe(inbox.put_nowait, items)
        loop.call_soon_threadsafe(inbox.put_nowait, None)

    def flush():
        connection.send(list(outbox))
        outbox.clear()

    async def sample(request):
        found = await host.sample(request)
        if not outbox:
            loop.call_soon(flush)
        outbox.append((request.trajectory_id, found))

    listener = threading.Thread(target=listen)
    listener.start()
    async with player.new_host() as host:
        while (items := await inbox.get()) is not None:
            for kind, value in items:
                if kind == "sample":
                    tasks.add(task := asyncio.ensure_future(sample(value)))
                    task.add_done_callback(tasks.discard)
                else:
                    getattr(host, kind)(value)
    listener.join()


async def sample(way, player, hosts, connection, number):
    """A collection; with the CPU seconds of the second process."""
    if way == "processes":
        connection.send(number)
        first = await player.play(hosts[0], player.rollouts(number, slice(player.num_prompts // 2)))
        second, other_s = await asyncio.to_thread(connection.recv)
        return [*first, *second], other_s
    if way != "server":
        return await player.play(hosts[0] if way == "one" else Split(hosts), player.rollouts(number)), 0.0
    connection.send("serve")
    remote = Remote(connection)
    scored = await player.play(Split([remote, hosts[0]]), player.rollouts(number))
    await asyncio.sleep(0)  # the last releases go out
    remote.loop.remove_reader(connection.fileno())
    connection.send(None)
    return scored, (await asyncio.to_thread(connection.recv))[1]


async def play_all(arguments, player, updater, connection):
    found = {way: [] for way in WAYS}
    tokens = {}
    async with player.harness.opened(), contextlib.AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(player.new_host()) for _ in range(2)]
        for number in range(arguments.rounds + 1):
            for way in WAYS[number % len(WAYS) :] + WAYS[: number % len(WAYS)]:
                wall, cpu = time.perf_counter(), time.process_time()
                scored, other_s = await sample(way, player, hosts, connection, number)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                tokens[way] = sorted((item.trajectory.id, item.trajectory.tokens) for item in scored)
                found[way].append((wall, cpu, other_s))
            assert tokens["threads"] == tokens["server"], "the same halves, other tokens"
            started = time.perf_counter(), time.process_time()
            await hosts[0].change_weights(partial(updater.update, make_batch(scored), 1), 1)
            update = time.perf_counter() - started[0], time.process_time() - started[1]
            for way in WAYS:
                found[way][-1] += update
    return {way: steps[1:] for way, steps in found.items()}  # the first warms up


def report(found):
    update_s, update_cpu_s = (median(step[at] for step in found["one"]) for at in (3, 4))
    print(f"update: {update_s:.3f} wall, {update_cpu_s:.3f} CPU; sampling, medians:")
    print(f"{'':10} {'wall':>6} {'CPU':>6} {'other':>6}   step one / this, by the clock    by CPU")
    least = {way: median(max(cpu, other) for _, cpu, other, *_ in steps) for way, steps in found.items()}
    for way, steps in found.items():
        wall, cpu, other = (median(step[at] for step in steps) for at in range(3))
        ratios = sorted((a[0] + a[3]) / (b[0] + b[3]) for a, b in zip(found["one"], steps, strict=True))
        by_cpu = (least["one"] + update_cpu_s / 2) / (least[way] + update_cpu_s / 2)
        spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{way:10} {wall:6.3f} {cpu:6.3f} {other:6.3f}   {spread:31}  {by_cpu:.2f}")


def main(arguments):
    context = mp.get_context("spawn")
    connection, theirs = context.Pipe()
    other = context.Process(target=work, args=(theirs, arguments.model, arguments.prompts), daemon=True)
    other.start()
    player = Player(arguments.model, arguments.prompts)
    workers = ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,))
    train = player.spec.train.model_copy(update={"learning_rate": 0.0})
    updater = Updater(player.model, train, temperature=1.0, seed=0, workers=workers)
    assert connection.recv() == "ready"
    report(asyncio.run(play_all(arguments, player, updater, connection)))
    connection.send(None)
    other.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder with a model")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--prompts", type=int, default=16)
    main(parser.parse_args())
