"""Worlds behind the real loop: a scripted policy, the real executor, a small tokenizer."""

import asyncio
import sys
from pathlib import Path

import pytest

from rlf.chat import FORMATS
from rlf.chat.repair import read_stand_in
from rlf.environments import EnvSpec, WorldPool
from rlf.rollout import Rollout, RolloutLimits, Setting, play
from rlf.rollout.scripted import ScriptedPolicy
from rlf.tools import Executor
from rlf.types import Message, Sampling, Task

from ..chat.tokenizers import byte_level
from ..warm import warm_python

STOP = "<|im_end|>"
TEMPLATE = read_stand_in("hermes").template
MARKUP = [
    *("<|endoftext|>", "<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>"),
]
WORLDS = Path(__file__).with_name("worlds.py")
OPENENV = Path(sys.prefix) / "worlds" / "openenv" / "bin" / "python"


@pytest.fixture(autouse=True)
def _own_lists(own_lists):
    """As of `tests/conftest.py`: many worlds here are servers."""


@pytest.fixture(scope="session")
def tokenizer():
    return byte_level(MARKUP, TEMPLATE)


@pytest.fixture(scope="session")
def played(tokenizer):
    """Plays turns in worlds and returns the trajectories, one for each script."""

    def run(env, *scripts, task=None, prefix=None, tools=(), **limits):
        if isinstance(env, dict):
            env = EnvSpec.model_validate(env)
        task = task or Task("t", (Message("user", "Go."),), 3, columns={"answer": 3})

        async def go():
            async with WorldPool(env, seed=7) as worlds, Executor([*tools, *worlds.declarations]) as executor:
                chat = FORMATS.get("hermes")(tokenizer, executor.descriptions)
                policy = ScriptedPolicy(tokenizer, {f"t{number}": script for number, script in enumerate(scripts)})
                setting = Setting(
                    policy,
                    chat,
                    executor,
                    RolloutLimits(**({"max_turns": 6, "max_total_tokens": 9999, "max_parse_failures": 3} | limits)),
                    Sampling(stop_token_ids=chat.stop_token_ids),
                    worlds=worlds,
                )
                rollouts = [
                    Rollout(f"t{number}", task, number, seed=number, prefix=prefix) for number in range(len(scripts))
                ]
                return await asyncio.gather(*(play(rollout, setting) for rollout in rollouts)), policy

        return asyncio.run(go())

    return run


def world(name, **keys):
    """The `env:` of a class in `worlds.py`."""
    return {"kind": "python", "callable": f"{WORLDS}:{name}"} | keys


def call(name, **arguments):
    """A turn that calls a tool."""
    import json

    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def openenv_python():
    """A Python that has imported OpenEnv; skips the test where it is not installed."""
    if not OPENENV.with_name("openenv").exists():
        pytest.skip(f"{OPENENV} has no OpenEnv: `make .venv/worlds/ready` installs it")
    used = ("cli.__main__", "core.generic_client", "core.env_server.http_server")
    return warm_python(*(f"openenv.{name}" for name in used), python=str(OPENENV))
