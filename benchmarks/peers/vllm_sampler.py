"""Rollouts of the embedded model: rlf's sampler beside vLLM for CPUs.

Both play the same questions through rlf's rollout loop, with the same tools, limits, temperature, float32 weights and
log-probabilities of sampled tokens; only the sampler differs. vLLM's asynchronous engine runs in a child process, in
the environment that `rlf rehearse --setup --vllm` makes. The sides take turns on the same cores, and the other one
sleeps. Both begin a round without cached keys and values, as after an update.

vLLM's settings: prefix cache with blocks of 32 tokens, as many sequences as trajectories, 1 GiB of cache (all
conversations take 63 MB), no detokenizing, no seeds per request, one message per turn, compiled by inductor (`--eager`
turns that off), Intel's OpenMP with as many threads as `--cores`, unbound: the process is bound to the cores itself.
`--workers` leaves its model in a process of its own, as is its default; without, it is in the engine's process, which
waits without spinning. CPU seconds are those of all of its processes.

    rlf rehearse --setup --vllm
    python benchmarks/peers/vllm_sampler.py --model runs/ID/model [--cores 1] [--rounds 3] [--trajectories 128]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import torch
from rollout import ROOT, Played, play_rlf, report

from rlf.apps.openrlhf.policy import EnginePolicy
from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment
from rlf.chat.encoding import load_tokenizer
from rlf.core.identity import derive_seed
from rlf.engines.engine import load_inputs
from rlf.engines.local.host import PolicyHost
from rlf.engines.local.model import PolicyModel, load_model
from rlf.rollout.rollout import Rollout
from rlf.runs.plans import check_spec
from rlf.spec.models import Schedule
from rlf.training.harness import build_harness


class Play:
    """What both sides share: the spec's harness and the questions of each round."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        plan = check_spec([ROOT / "specs" / "search.yaml"], []).plan
        self.tasks, self.size = load_inputs(plan).train, arguments.trajectories // 8
        self.harness = build_harness(plan.spec, load_tokenizer(arguments.model), lambda *_: None)
        assert not self.harness.training.stop_strings, "vLLM would have to detokenize"

    def rollouts(self, round_: int) -> list[Rollout]:
        tasks = self.tasks[round_ * self.size : (round_ + 1) * self.size]
        return [
            Rollout(f"{round_}/{task.id}/{k}", task, k, derive_seed(round_, task.id, k))
            for task in tasks
            for k in range(8)
        ]

    async def round(self, number: int, policy: Any) -> Played:
        return await play_rlf(self.harness, self.harness.tools, policy, self.rollouts(number))

    async def round_by_rlf(self, number: int, model: PolicyModel, cores: int) -> Played:
        """A round on a host of rlf's, opened for it."""
        host = PolicyHost(
            model,
            self.harness.chat.decode,
            num_slots=8 * self.size,
            max_tokens=self.harness.limits.max_total_tokens,
            schedule=Schedule.LOGICAL,
            threads=cores,
        )
        async with host:
            return await self.round(number, host)


class Engine:
    """vLLM's engine as OpenRLHF's rollout actor shows it, without detokenizing and with one message per turn."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.numbers = engine, itertools.count()

    async def generate(self, tokens: list[int], params: Any, _: object) -> Any:
        from vllm.sampling_params import RequestOutputKind

        params.detokenize, params.output_kind = False, RequestOutputKind.FINAL_ONLY
        outputs = self.engine.generate({"prompt_token_ids": tokens}, params, str(next(self.numbers)))
        return [output async for output in outputs][-1]


def cpu_s_of_all() -> float:
    """CPU seconds of this process and those below it."""
    import psutil

    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(time_.user + time_.system for time_ in times)


async def serve(arguments: argparse.Namespace) -> None:
    """The child: plays the round that each line of stdin names, and answers with a line."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # vLLM prints
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    play = Play(arguments)
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=arguments.model,
            dtype="float32",
            max_model_len=play.harness.limits.max_total_tokens,
            max_num_seqs=arguments.trajectories,
            enable_prefix_caching=True,
            block_size=32,
            logprobs_mode="processed_logprobs",
            enforce_eager=arguments.eager,
            skip_tokenizer_init=True,
            disable_log_stats=True,
        )
    )
    policy = EnginePolicy(Engine(engine), SamplingParams(logprobs=0))
    async with play.harness.opened():
        answers.write("{}\n")
        while line := await asyncio.to_thread(sys.stdin.readline):
            await engine.reset_prefix_cache()
            before = cpu_s_of_all()
            played = await play.round(int(line), policy)
            answers.write(json.dumps(asdict(replace(played, cpu_s=cpu_s_of_all() - before))) + "\n")
    engine.shutdown()


@contextmanager
def vllm_child(arguments: argparse.Namespace):
    """The child in the rehearsals' environment, ready for rounds."""
    environment = rehearsal_environment()
    if not environment.is_ready(vllm=True):
        sys.exit("there is no vLLM: run `rlf rehearse --setup --vllm`")
    variables = os.environ | environment.variables()
    variables |= {"OMP_NUM_THREADS": str(arguments.cores), "PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "WARNING"}
    if (openmp := environment.folder / "lib" / "libiomp5.so").is_file():
        variables["LD_PRELOAD"] = str(openmp)  # as vLLM's documentation advises
    if arguments.workers:
        del variables["VLLM_ENABLE_V1_MULTIPROCESSING"]
    command = [environment.python, *sys.argv, "--child"]
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        if not child.stdout.readline():
            sys.exit("vLLM does not start; its last words are above")
        yield child
        child.stdin.close()


async def main(arguments: argparse.Namespace) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    play = Play(arguments)
    model = load_model(arguments.model, dtype=torch.float32, device=torch.device("cpu"))
    played: dict[str, list[Played]] = {"rlf": [], "vLLM": []}
    with vllm_child(arguments) as child:
        async with play.harness.opened():
            for number in range(arguments.rounds + 1):
                one = await play.round_by_rlf(number, model, arguments.cores)
                child.stdin.write(f"{number}\n")
                other = Played(**json.loads(child.stdout.readline()))
                if number:  # the first round warms both up
                    played["rlf"].append(one)
                    played["vLLM"].append(other)
    report(played)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder with a model")
    parser.add_argument("--trajectories", type=int, default=128, help="per round, a multiple of 8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1, help="of both sides")
    parser.add_argument("--eager", action="store_true", help="vLLM compiles nothing")
    parser.add_argument("--workers", action="store_true", help="vLLM's model is in a process of its own")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    asyncio.run((serve if arguments.child else main)(arguments))
