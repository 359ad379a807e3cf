"""Every attack of the table, at every level that says it stops it, as root and as an ordinary user."""

import functools
import json
import os

import pytest

from rlf.sandbox import Level, SandboxOutcome

from .attacks import ATTACKS
from .machine import need, run_as

BATTERY = """
import asyncio, json, sys
from rlf.sandbox import Level
from tests.sandbox.attacks import run_battery

async def main():
    async for result in run_battery(Level(sys.argv[1])):
        print(json.dumps([result.attack, result.outcome, result.escaped]))

asyncio.run(main())
"""
USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
CASES = [
    pytest.param(user, level, attack, id=f"{user}-{level}-{attack.name}")
    for user in USERS
    for level in (Level.NAMESPACES, Level.LANDLOCK, Level.PROCESS)
    for attack in ATTACKS
    if level in attack.levels
]


@functools.cache
def battery(user, level):
    """By attack: how it ended and what it achieved. The attacks of a level share one sandbox, as calls of a run do."""
    rows = [json.loads(line) for line in run_as(user, BATTERY, level).splitlines()]
    return {name: (outcome, escaped) for name, outcome, escaped in rows}


@pytest.mark.parametrize(("user", "level", "attack"), CASES)
def test_an_attack_achieves_nothing_and_leaves_nothing(user, level, attack):
    outcome, escaped = battery(user, need(level))[attack.name]
    assert escaped == []
    assert outcome in attack.outcomes


def test_no_attack_may_end_as_infrastructures_fault():
    assert not [attack.name for attack in ATTACKS if SandboxOutcome.INFRA in attack.outcomes]


def test_names_of_attacks_are_distinct():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
