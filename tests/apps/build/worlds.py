"""Small builds for tests."""

from dataclasses import replace

from rlf.apps.build import BuildSettings
from rlf.rewards.facts import TrajectoryFacts
from rlf.rewards.values import solved_by
from rlf.spec import load_spec
from rlf.spec.inputs import look
from rlf.tools import Executor
from rlf.types import CallRecord, ToolCall


def settings(out="unused", *, count=48, **keys):
    build = {"kind": "graph", "count": count, "entities": 12, "worlds": 3, **keys.pop("build", {})}
    gates = {"no_tool": 0.2}  # of twelve things one in twelve is guessed
    return BuildSettings.model_validate({"build": build, "out": str(out), "gates": gates, **keys})


def parts(built):
    with built.build.open(built, None) as maker:
        return [maker.make(name) for name in maker.names]


async def rewards_of_gold(spec_file, tasks):
    """What the world's own reward gives for each task's gold calls, made by the executor as in training."""
    loaded = load_spec([spec_file])
    spec, (solve, *_) = loaded.spec, loaded.spec.rewards
    by_id = {task.id: task for task in look(loaded).train}
    rewards = {}
    async with Executor(spec.tools) as executor:
        for task in tasks:
            calls = []
            for step in task.steps:
                call = ToolCall(step.tool, dict(step.filled([each.gold for each in task.steps])))
                assert by_id[task.id].may_use(call.name)
                calls.append(CallRecord(call, await executor.invoke(call, trajectory_id=task.id)))
            empty = TrajectoryFacts.model_validate({"turns": [{}]}).trajectory()
            turn = replace(empty.turns[0], calls=tuple(calls))
            played = replace(empty, task=by_id[task.id], turns=(turn,))
            rewards[task.id] = (solve.judge(played).value, solved_by(played).f1)
    return rewards
