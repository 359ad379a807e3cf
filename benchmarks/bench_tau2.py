"""Verdicts of `rlf bench tau2` beside those of the package's own evaluator of databases, on published actions.

    python -m benchmarks.bench_tau2 mock airline [--formats hermes,llama3,glm4] [--limit N]

The published actions, and an agent that says one sentence, are played through rlf's whole loop. Beside the first the
package's evaluator compares the databases that the same messages leave in environments of its own. Prints the reward of
both, disagreements on the database, and what a task costs. Needs `rlf bench tau2 --setup` first.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.bench_verdicts import cpu_s, play_all
from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.kinds import tau2
from rlf.apps.bench.run import write_benchmark
from rlf.chat.repair import stand_in
from rlf.data.tasks import load_tasks
from rlf.spec.load import load_spec


def gold_of(task):
    """The published actions as turns: the world's own, without its environment."""
    world = tau2.Tau2World.__new__(tau2.Tau2World)
    world._task = tau2.package(task.kind).task.model_validate_json(task.columns["task"])
    return [one if isinstance(one, str) else [(one["name"], one["arguments"])] for one in world.gold()]


def official(task):
    """Whether the package's evaluator finds equal databases after the published actions; None where it looks not."""
    used = tau2.package(task.kind)
    make = import_module(f"tau2.domains.{task.kind}.environment").get_environment
    evaluator = import_module("tau2.evaluator.evaluator_env").EnvironmentEvaluator
    plain = used.task.model_validate_json(task.columns["task"])
    env, start = make(), plain.initial_state
    history = (start and start.message_history) or []
    env.set_state(start and start.initialization_data, start and start.initialization_actions, history)
    messages = [*history]
    for number, action in enumerate(plain.evaluation_criteria.actions or []):
        call = used.call(id=f"c{number}", name=action.name, arguments=action.arguments, requestor=action.requestor)
        kind = used.user if action.requestor == "user" else used.agent
        role = "user" if action.requestor == "user" else "assistant"
        messages += [kind(role=role, content=None, tool_calls=[call]), env.get_response(call)]
    found = evaluator.calculate_reward(make, plain, messages).db_check
    return None if found is None else bool(found.db_match)


def try_domain(domain, formats, limit):
    benchmark = BENCHMARKS.get("tau2")(domain=domain)
    made = write_benchmark(benchmark, Path(mkdtemp(prefix="rlf-tau2-")))
    sys.path.insert(0, benchmark.packages.path)
    tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind")[:limit]
    env = load_spec([made.spec]).spec.env
    started = time.process_time()
    import_module(f"tau2.domains.{domain}.environment").get_environment()
    print(f"{domain}: {len(tasks)} tasks; a further environment takes {time.process_time() - started:.2f} s of CPU")
    theirs = {task.id: official(task) for task in tasks}
    plan = [(task, at, turns) for task in tasks for at, turns in enumerate((gold_of(task), ["No."] * 9))]
    for name in formats:
        started = cpu_s()
        found = asyncio.run(play_all(env, stand_in(name, env.tools), plan, score=None))
        used_ms = 1000 * (cpu_s() - started) / len(plan)
        ours = [[found[task.id, at][0] for task in tasks] for at in range(2)]
        golds, nulls = (sum(one["reward"] for one in scores) for scores in ours)
        apart = [t.id for t, one in zip(tasks, ours[0], strict=True) if theirs[t.id] not in (None, bool(one["db"]))]
        print(
            f"  {name}: reward {golds:g} by published actions, {nulls:g} by words; databases apart from the package's "
            f"verdict: {len(apart)} {apart[:5]}; {used_ms:.0f} ms of CPU a trajectory"
        )
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    print(f"  most memory of a world's process: {most} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("domains", nargs="+", choices=["mock", "retail", "airline", "telecom"])
    parser.add_argument("--formats", default="hermes")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    for domain in options.domains:
        try_domain(domain, options.formats.split(","), options.limit)


if __name__ == "__main__":
    main()
