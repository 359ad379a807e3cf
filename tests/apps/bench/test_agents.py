"""An agent plays a benchmark's world over MCP: published answers have the verdict that rlf's own loop gives them."""

import asyncio
import sys

import pytest

from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.kinds import bfcl
from rlf.apps.bench.run import write_benchmark
from rlf.apps.serve.agents import AgentServer
from rlf.data.tasks import load_tasks
from rlf.environments import WorldPool
from rlf.rollout.loop import Setting
from rlf.rollout.rollout import Rollout, RolloutLimits
from rlf.rollout.scripted import ScriptedPolicy
from rlf.spec.agent import AgentSpec
from rlf.spec.load import load_spec
from rlf.tools.execution.executor import Executor
from rlf.types import Sampling
from tests.apps.serve.agents import test_tools
from tests.apps.serve.agents.test_sessions import CHAT, TOKENIZER

PACKAGES = BENCHMARKS.get("bfcl").packages
pytestmark = pytest.mark.skipif(PACKAGES.version is None, reason="bfcl-eval is not installed: rlf bench bfcl --setup")


async def play_by_agent(env, plan):
    """The verdict on each answer, which a scripted model gives to an agent."""
    agent = AgentSpec(callable=f"{test_tools.__name__}:follows", timeout_s=120.0)
    found = []
    async with (
        WorldPool(env, seed=0) as worlds,
        Executor(worlds.declarations, seed=0) as tools,
        AgentServer(agent, TOKENIZER) as server,
    ):
        for number, (task, turns) in enumerate(plan):
            lines = [turn if isinstance(turn, str) else test_tools.called(turn[0], **turn[1]) for turn in turns]
            policy = ScriptedPolicy(TOKENIZER, [line.removesuffix("<|im_end|>") + "<|im_end|>" for line in lines])
            limits = RolloutLimits(max_turns=60, max_total_tokens=1 << 24)
            setting = Setting(policy, CHAT, tools, limits, Sampling(stop_token_ids=CHAT.stop_token_ids), worlds=worlds)
            played = await server.player(setting, overrides=True).play(Rollout(f"r{number}", task, 0, seed=0))
            found.append((played.error, dict(played.world.scores)))
    return found


def answers_of(task):
    """The published answer with what is said to the user by the tool, but for the last words; and words alone."""
    world = bfcl.BfclWorld("native")
    world.reset(task, 0)
    gold = [one if isinstance(one, str) else (one["name"], one["arguments"]) for one in world.gold()]
    *said, last = gold if isinstance(gold[-1], str) else [*gold, "Done."]
    yield [("say_to_user", {"text": one}) if isinstance(one, str) else one for one in said] + [last]
    yield ["I cannot help."]


def test_published_answers_by_an_agent_are_valid_and_words_alone_are_not(tmp_path, monkeypatch):
    if PACKAGES.path is not None:
        monkeypatch.setattr(sys, "path", [PACKAGES.path, *sys.path])
    made = write_benchmark(BENCHMARKS.get("bfcl")(categories="simple_python,multi_turn_base"), tmp_path)
    tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind")
    chosen = [next(task for task in tasks if task.kind == kind) for kind in ("simple_python", "multi_turn_base")]
    plan = [(task, turns) for task in chosen for turns in answers_of(task)]
    found = asyncio.run(play_by_agent(load_spec([made.spec]).spec.env, plan))
    assert found == [(None, {"valid": value}) for value in (1.0, 0.0, 1.0, 0.0)]
