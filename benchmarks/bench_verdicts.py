"""Verdicts of `rlf bench bfcl` beside those of the official checker, on published answers and on changed ones.

    python -m benchmarks.bench_verdicts [--limit N] [--formats hermes,llama3,glm4] [--mutations 1]

Each answer is written as a model of the format would write it and played through rlf's whole loop: rendered, sampled
by a script, parsed, run in its world, judged. Beside it the official checker judges the answer as it was before any of
that. Every disagreement is printed with its reason. Needs `rlf bench bfcl --setup` first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.kinds.bfcl import CATEGORIES as BFCL
from rlf.apps.bench.run import write_benchmark
from rlf.chat.repair import stand_in
from rlf.chat.settings import FailurePolicy
from rlf.data.tasks import load_tasks
from rlf.environments import WorldPool
from rlf.rollout.loop import Setting, play
from rlf.rollout.rollout import ChatPolicy, Rollout, RolloutLimits
from rlf.rollout.scripted import ScriptedPolicy
from rlf.spec.load import load_spec
from rlf.tools.execution.executor import Executor
from rlf.types import Sampling, ToolCall

KINDS = (
    "wrong value",
    "wrong type",
    "missing argument",
    "extra argument",
    "extra call",
    "missing call",
    "order",
    "name",
)


def mutate(kind, calls, rng):
    """The calls with one change; None where there is nothing to change so."""
    calls = [(name, dict(arguments)) for name, arguments in calls]
    place = rng.randrange(len(calls)) if calls else 0
    if kind == "extra call":
        return [*calls, calls[place]] if calls else None
    if kind == "missing call":
        return [*calls[:place], *calls[place + 1 :]] if calls else None
    if kind == "order":
        return calls[::-1] if len(calls) > 1 and calls != calls[::-1] else None
    if not calls:
        return None
    name, arguments = calls[place]
    if kind == "name":
        calls[place] = (f"{name}_other", arguments)
        return calls
    if kind == "extra argument":
        arguments["never_declared"] = 1
        return calls
    if not arguments:
        return None
    key = rng.choice(sorted(arguments))
    value = arguments[key]
    if kind == "missing argument":
        del arguments[key]
    elif kind == "wrong type":
        arguments[key] = [value] if not isinstance(value, list) else json.dumps(value)
    else:
        changes = {
            bool: lambda: not value,
            int: lambda: value + 7,
            float: lambda: value + 7.5,
            str: lambda: value + " zz",
        }
        change = changes.get(type(value))
        arguments[key] = change() if change else ([*value, "zz"] if isinstance(value, list) else {**value, "zz": 1})
    return calls


def answers_of(world, num_mutations, rng):
    """(what it is, the turns) of the published answer and of changed ones: calls, or words, by turn of the model."""
    gold = world.gold()
    if gold is None:
        return
    if not world._has_turns:
        calls = [(one["name"], one["arguments"]) for one in gold if not isinstance(one, str)]
        yield "gold", [calls or "No function fits."]
        yield "nothing", ["I cannot help with that."]
        for kind in rng.sample(KINDS, min(num_mutations, len(KINDS))):
            changed = mutate(kind, calls, rng) if calls else ([("made_up", {"a": 1})] if kind == "extra call" else None)
            if changed is not None:
                yield kind, [changed or "No function fits."]
        return
    turns = [one if isinstance(one, str) else [(one["name"], one["arguments"])] for one in gold]
    yield "gold", turns
    yield "nothing", ["Done."] * sum(isinstance(one, str) for one in turns)
    places = [place for place, one in enumerate(turns) if not isinstance(one, str)]
    for kind in rng.sample(KINDS, min(num_mutations, len(KINDS))):
        if not places:
            return
        place = rng.choice(places)
        if kind == "order" and len(places) > 1:
            first, second = places[:2]
            swapped = list(turns)
            swapped[first], swapped[second] = turns[second], turns[first]
            yield kind, swapped
            continue
        changed = mutate(kind, turns[place], rng)
        if changed is not None:
            yield kind, [*turns[:place], *([changed] if changed else []), *turns[place + 1 :]]


def official(used, row, turns):
    """The checker's verdict on the answer, by the package's own functions alone."""
    entry, gold = json.loads(row["entry"]), json.loads(row["ground_truth"])
    if row["kind"].startswith("multi_turn"):
        by_turn, now = [], []
        for turn in turns:
            if isinstance(turn, str):
                by_turn.append(now)
                now = []
            else:
                now.append([used.write_calls([{name: arguments}])[0] for name, arguments in turn])
        official.number += 1
        name = f"official_{official.number}"
        if len(by_turn) != len(gold):
            return False
        return bool(used.turn_checker(by_turn, gold, entry, row["kind"], name)["valid"])
    calls = [] if isinstance(turns[0], str) else [{name: arguments} for name, arguments in turns[0]]
    if "relevance" in row["kind"]:
        return used.utils.is_empty_output(calls) is ("irrelevance" in row["kind"])
    language = used.languages.get(row["kind"].removeprefix("simple_"), used.python)
    return bool(used.ast_checker(entry["function"], calls, gold, language, row["kind"], "rlf")["valid"])


official.number = 0


async def play_all(env, chat, answers, score="valid"):
    """The verdict of rlf on each answer, by (task, number); all scores where none is named."""
    found, stop = {}, chat.decode([chat.stop_token_ids[0]])
    handling = ChatPolicy(otherwise=FailurePolicy.END)
    sampling = Sampling(stop_token_ids=chat.stop_token_ids)
    room = asyncio.Semaphore(8)
    async with WorldPool(env, seed=0) as worlds, Executor(worlds.declarations, seed=0) as tools:

        async def one(task, number, turns):
            lines = [
                turn if isinstance(turn, str) else chat.write_calls([ToolCall(*call) for call in turn])
                for turn in turns
            ]
            policy = ScriptedPolicy(chat.tokenizer, [line if line.endswith(stop) else line + stop for line in lines])
            most = 400 if task.kind not in BFCL or task.kind.startswith("multi_turn") else 1
            limits = RolloutLimits(max_turns=most, max_total_tokens=1 << 26, max_parse_failures=0)
            setting = Setting(policy, chat, tools, limits, sampling, handling, worlds)
            async with room:
                trajectory = await play(Rollout(f"{task.id}/{number}", task, 0, seed=0), setting)
            record = trajectory.world
            failures = [failure.kind for turn in trajectory.turns for failure in turn.failures]
            verdict = dict(record.scores) if score is None else record.scores.get(score)
            found[task.id, number] = (verdict, trajectory.error, failures, trajectory.stop)

        # By parts, so that not all worlds are asked for at once.
        for first in range(0, len(answers), 256):
            await asyncio.gather(*(one(task, number, turns) for task, number, turns in answers[first : first + 256]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--categories", default="all")
    parser.add_argument("--formats", default="hermes")
    parser.add_argument("--limit", type=int, help="of each category")
    parser.add_argument("--mutations", type=int, default=1, help="changed answers of each task")
    options = parser.parse_args()
    benchmark = BENCHMARKS.get("bfcl")(categories=options.categories)
    made = write_benchmark(benchmark, Path(mkdtemp(prefix="rlf-verdicts-")))
    sys.path.insert(0, benchmark.packages.path)
    from rlf.apps.bench.kinds.bfcl import BfclWorld, package

    spec = load_spec([made.spec]).spec
    tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind")
    seen = Counter()
    rng = random.Random(0)
    plan, names, expected = [], {}, {}
    for task in tasks:
        seen[task.kind] += 1
        if options.limit is not None and seen[task.kind] > options.limit:
            continue
        world = BfclWorld("native")
        world.reset(task, 0)
        for number, (kind, turns) in enumerate(answers_of(world, options.mutations, rng)):
            plan.append((task, number, turns))
            names[task.id, number] = kind
    started = time.perf_counter()
    for task, number, turns in plan:
        expected[task.id, number] = official(package(), task.columns, turns)
    judged_s = time.perf_counter() - started
    print(f"{len(plan):,} answers; the official checker alone: {judged_s:.1f} s")
    started = time.process_time()
    for task, _, turns in plan:
        judge_in_place(task, turns)
    own_s = time.process_time() - started
    print(f"the world alone, calls and verdict, in one process: {1000 * own_s / len(plan):.1f} ms of CPU an answer")
    for name in options.formats.split(","):
        started = cpu_s()
        found = asyncio.run(play_all(spec.env, stand_in(name, spec.env.tools), plan))
        report(name, plan, names, expected, found, cpu_s() - started)


def judge_in_place(task, turns):
    """Plays an answer on the world itself: no prompt, no text to parse, no process."""
    from rlf.apps.bench.kinds.bfcl import BfclWorld

    world = BfclWorld("native")
    world.reset(task, 0)
    for turn in turns:
        if isinstance(turn, str):
            world.reply(turn)
        for name, arguments in () if isinstance(turn, str) else turn:
            world.call(name, arguments)
    world.review([{"text": "", "calls": [] if isinstance(turn, str) else turn} for turn in turns])
    world.score()
    world.close()


def cpu_s():
    """Processor time of this process and of those of the worlds that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def report(name, plan, names, expected, found, seconds):
    counts, right = Counter(), Counter()
    differ = []
    for task, number, _ in plan:
        kind = names[task.id, number]
        value, error, failures, stop = found[task.id, number]
        counts[kind] += 1
        right[kind] += expected[task.id, number]
        if value != float(expected[task.id, number]):
            differ.append((task.id, kind, expected[task.id, number], value, error or failures or stop))
    print(
        f"\n{name}: {len(plan):,} answers, {1000 * seconds / len(plan):.1f} ms of CPU each by the whole loop, "
        f"{len(differ)} disagreements"
    )
    print(f"{'answer':18}{'number':>8}{'official: valid':>18}{'disagreements':>16}")
    apart = Counter(kind for _, kind, *_ in differ)
    for kind in counts:
        print(f"{kind:18}{counts[kind]:8,}{right[kind]:18,}{apart[kind]:16,}")
    for line in differ[:40]:
        print("  ", *line)


if __name__ == "__main__":
    main()
