"""Rollouts of the embedded model: rlf's loop and sampler beside verifiers, which asks a server of the same weights.

Both play the same questions with the same tools, turn limit and temperature, and the same sampler: verifiers asks
`rlf serve`, since it has no sampler of its own. The sides take turns. CPU seconds of verifiers' side are those of its
process, of the server of its tools and of the server of the model. verifiers has its environment, no torch is in it.

    make .venv/worlds/ready
    python benchmarks/peers/verifiers_rollout.py --model runs/ID/model [--cores 1] [--rounds 3] [--null]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
import torch
from rollout import ROOT, Played, report
from vllm_sampler import Play

from rlf.engines.local.model import load_model

PYTHON = ROOT / ".venv" / "worlds" / "verifiers" / "bin" / "python"
PEERS = Path(__file__).parent
COPIES = 8


class Other:
    """verifiers in a process of its own, and the server it asks."""

    def __init__(self, child: subprocess.Popen, server: subprocess.Popen) -> None:
        self.child, self.processes = child, [psutil.Process(child.pid), psutil.Process(server.pid)]
        self.servers_cpu_s: list[float] = []
        """Of the model's server alone, in each round."""

    def ask(self, order: object) -> dict:
        self.child.stdin.write(json.dumps(order) + "\n")
        return self.answer()

    def answer(self) -> dict:
        line = self.child.stdout.readline()
        return json.loads(line) if line else sys.exit("verifiers ended; its last words are above")

    def round(self, tasks) -> Played:
        before, servers = self.cpu_s(self.processes), self.cpu_s(self.processes[1:])
        found = self.ask({"questions": [[question_of(task), str(task.answer)] for task in tasks], "copies": COPIES})
        if found["errors"]:
            print("errors:", *found["errors"], file=sys.stderr)
        self.servers_cpu_s.append(self.cpu_s(self.processes[1:]) - servers)
        return Played(found["wall_s"], self.cpu_s(self.processes) - before, found["num_sampled"], found["success"])

    def cpu_s(self, processes: list[psutil.Process]) -> float:
        """CPU seconds of processes and of those that they started, also of those that ended."""
        everyone = [one for process in processes for one in (process, *process.children(recursive=True))]
        return sum(sum(one.cpu_times()[:4]) for one in everyone)


def question_of(task) -> str:
    (message,) = task.messages
    return message.content


@contextmanager
def verifiers_child(arguments: argparse.Namespace, play: Play):
    """A server of the model and verifiers' process, both ready."""
    variables = os.environ | {"OMP_NUM_THREADS": str(arguments.cores), "PYTHONPATH": str(ROOT)}
    num = str(arguments.trajectories)
    serve = [sys.executable, "-m", "rlf", "serve", arguments.model, "--name", "peer", "--port", "0", "--json"]
    serve += ["--max-concurrency", num, "--max-queue", num]
    command = [PYTHON, PEERS / "verifiers_questions.py"]
    pipes = {"stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(serve, env=variables, **pipes) as server:
        try:
            url = json.loads(server.stdout.readline())["data"]["url"]
            path = f"{ROOT}{os.pathsep}{PEERS}"
            words = [
                url,
                "peer",
                "null" if arguments.null else "verifiers_questions",
                str(play.harness.limits.max_turns),
            ]
            with subprocess.Popen(
                [*command, *words], env=variables | {"PYTHONPATH": path}, stdin=subprocess.PIPE, **pipes
            ) as child:
                other = Other(child, server)
                other.ask([tool.as_openai() for tool in play.harness.tools.descriptions])
                yield other
                child.stdin.close()
        finally:
            server.terminate()


async def main(arguments: argparse.Namespace) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    play = Play(arguments)
    model = load_model(arguments.model, dtype=torch.float32, device=torch.device("cpu"))
    played: dict[str, list[Played]] = {"rlf": [], "verifiers": []}
    async with play.harness.opened():
        with verifiers_child(arguments, play) as child:
            for number in range(arguments.rounds + 1):
                one = await play.round_by_rlf(number, model, arguments.cores)
                other = child.round(play.tasks[number * play.size : (number + 1) * play.size])
                if number:  # the first round warms both up
                    played["rlf"].append(one)
                    played["verifiers"].append(other)
            servers = median(child.servers_cpu_s[1:])
    report(played)
    print(f"CPU seconds of the server that verifiers asks: {servers:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder with a model")
    parser.add_argument("--trajectories", type=int, default=128, help="per round, a multiple of 8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1, help="of both sides")
    parser.add_argument("--null", action="store_true", help="verifiers' own chat program, a process for each rollout")
    asyncio.run(main(parser.parse_args()))
