"""How often `rlf why` names the turn that was made wrong on purpose.

    python benchmarks/why.py RUN [--runs runs] [--num 50] [--samples 32]

Held-out questions of several turns are played by the run's model; in one turn, drawn at random, the call asks for what
the same turn of another question asked for. Of those that end wrong, as the same question without the plant does not,
the turn that is named is compared with the planted one.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from pathlib import Path

from rlf.apps.evaluate.branches import BranchPoint, Forced
from rlf.apps.evaluate.why import explain_turns
from rlf.engines.engine import HostSettings
from rlf.rollout.collect import collect
from rlf.rollout.rollout import Rollout
from rlf.runs.players import save_trajectories
from rlf.runs.targets import Target, open_target
from rlf.training.harness import build_harness
from rlf.types import Scored

_MODE = "planted"


async def play(target: Target, num: int) -> tuple[list[Scored], dict[str, int]]:
    """Trajectories with a plant that ended wrong, and the turn of each plant, from 0, by their ids."""
    spec, draw = target.spec, random.Random(0)
    assert target.checked is not None
    tasks = target.checked.inputs.evaluation
    host, tokenizer = await asyncio.to_thread(target.load_host, HostSettings(num_slots=len(tasks), dtype="float32"))
    harness = build_harness(spec, tokenizer, lambda level, text: None)
    async with harness.opened(), host:
        rollouts = [Rollout(f"plain/{at}", task, 0, at) for at, task in enumerate(tasks)]
        plain = await collect(rollouts, harness.setting(host, harness.training), harness.reward, step=0)
        turns = [item for item in plain if item.success == 1.0 and len(item.trajectory.turns) > 2]
        plants, again = {}, []
        for at, item in enumerate(turns):
            others = [one for one in turns if one.trajectory.task.kind == item.trajectory.task.kind and one is not item]
            turn = draw.randrange(len(item.trajectory.turns) - 1)
            other = draw.choice(others).trajectory
            source = other.turns[min(turn, len(other.turns) - 2)]
            plants[f"plant/{at}"] = turn, list(other.tokens[source.start : source.end])
            again.append(Rollout(f"plant/{at}", item.trajectory.task, 0, at))
        setting = harness.setting(Forced(host, plants), harness.training)
        planted = await collect(again, setting, harness.reward, step=0)
    wrong = [item for item in planted if item.success == 0.0][:num]
    return wrong, {item.trajectory.id: plants[item.trajectory.id][0] for item in wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--num", type=int, default=50)
    parser.add_argument("--samples", type=int, default=32)
    asked = parser.parse_args()
    with open_target(asked.run, (), ["eval.limit=512"], runs_folder=asked.runs) as target:
        wrong, turns = asyncio.run(play(target, asked.num))
        saved = save_trajectories(wrong, _MODE, target, asked.runs, ["benchmark"])
        step = target.step or 0
        named: Counter[str] = Counter()
        for k, item in enumerate(wrong):
            point = BranchPoint(saved, _MODE, step, k, 0)
            found = explain_turns(point, asked.samples, at=None, runs_folder=asked.runs, command=["benchmark"])
            planted = turns[item.trajectory.id] + 1
            named["planted" if found.decided == planted else "none" if found.decided is None else "another"] += 1
    total = named.total()
    print(f"{total} trajectories with a planted call that ended wrong, {asked.samples} continuations a turn")
    print(", ".join(f"{what} turn named: {number}" for what, number in sorted(named.items())))


if __name__ == "__main__":
    main()
