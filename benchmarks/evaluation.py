"""An evaluation whose two modes are played together, beside the same with one mode after the other.

    python benchmarks/evaluation.py [--model runs/ID/model] [--questions 512] [--rounds 5]

The sides take turns in one process; CPU seconds, and whether every trajectory has the same tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from statistics import median

import torch

from rlf.chat.encoding import load_tokenizer
from rlf.engines.engine import load_inputs
from rlf.engines.local.host import PolicyHost
from rlf.engines.local.model import load_model
from rlf.runs.plans import check_spec
from rlf.training import evaluation
from rlf.training.harness import build_harness
from rlf.types import EvaluationFinished

ROOT = Path(__file__).parents[1]
TOGETHER = evaluation._may_be_together


async def evaluate(spec, host, harness, tasks, *, together):
    """The tokens of every trajectory, and what the evaluation took on the clock and in CPU seconds."""
    evaluation._may_be_together = TOGETHER if together else lambda *_: False
    events, started, cpu_s = [], time.perf_counter(), time.process_time()
    await evaluation.evaluate_policy(host, harness, tasks, spec.eval, seed=0, step=0, emit=events.append)
    taken = time.perf_counter() - started, time.process_time() - cpu_s
    found = [event for event in events if isinstance(event, EvaluationFinished)]
    rates = [event.metrics["success"] for event in found]
    return {item.trajectory.id: item.trajectory for event in found for item in event.trajectories}, taken, rates


async def main(arguments):
    plan = check_spec([ROOT / "specs" / "search.yaml"], [f"eval.limit={arguments.questions}"]).plan
    inputs, spec = load_inputs(plan), plan.spec
    tokenizer = load_tokenizer(inputs.model_path)
    path = arguments.model or inputs.model_path
    model = load_model(path, dtype=torch.float32, device=torch.device("cpu"))
    harness = build_harness(spec, tokenizer, lambda level, text: print(f"{level}: {text}"))
    taken = {True: [], False: []}
    host = PolicyHost(
        model,
        harness.chat.decode,
        num_slots=min(256, arguments.questions),
        max_tokens=spec.rollout.max_total_tokens,
        schedule=spec.rollout.schedule,
    )
    async with harness.opened(), host:
        for _ in range(arguments.rounds + 1):
            apart, apart_s, rates = await evaluate(spec, host, harness, inputs.evaluation, together=False)
            both, both_s, same_rates = await evaluate(spec, host, harness, inputs.evaluation, together=True)
            taken[False].append(apart_s)
            taken[True].append(both_s)
    assert rates == same_rates, "another success"
    pairs = [(apart[id_], both[id_]) for id_ in apart]
    num_equal = sum(one.tokens == other.tokens for one, other in pairs)
    gap = max(
        abs(a - b) for one, other in pairs for a, b in zip(one.rollout_logprobs, other.rollout_logprobs, strict=True)
    )
    print(f"{num_equal} of {len(pairs)} trajectories have equal tokens; log-probabilities differ by {gap:.1e} at most")
    print(f"success sampled {rates[0]:.3f}, greedy {rates[1]:.3f}")
    for unit, name in enumerate(("wall", "CPU")):
        ratios = sorted(a[unit] / b[unit] for a, b in zip(taken[False][1:], taken[True][1:], strict=True))
        sides = [median(one[unit] for one in taken[side][1:]) for side in (False, True)]
        spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{name}: apart {sides[0]:.2f} s, together {sides[1]:.2f} s; apart / together {spread}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="a folder with trained weights; without: the untrained built-in model")
    parser.add_argument("--questions", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    asyncio.run(main(parser.parse_args()))
