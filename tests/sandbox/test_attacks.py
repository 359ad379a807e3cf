"""Every attack of the table, at every level that says it stops it, as root and as an ordinary user."""

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


@pytest.mark.parametrize("level", [Level.NAMESPACES, Level.LANDLOCK, Level.PROCESS])
@pytest.mark.parametrize("user", USERS)
def test_no_attack_achieves_or_leaves_anything(user, level):
    """The attacks of a level share one sandbox, as calls of a run do."""
    rows = [json.loads(line) for line in run_as(user, BATTERY, need(level)).splitlines()]
    found = {name: (outcome, escaped) for name, outcome, escaped in rows}
    tried = {attack.name: attack.outcomes for attack in ATTACKS if level in attack.levels}
    assert found.keys() == tried.keys()
    assert {name: escaped for name, (_, escaped) in found.items() if escaped} == {}
    assert {name: outcome for name, (outcome, _) in found.items() if outcome not in tried[name]} == {}


def test_no_attack_may_end_as_infrastructures_fault():
    assert not [attack.name for attack in ATTACKS if SandboxOutcome.INFRA in attack.outcomes]


def test_names_of_attacks_are_distinct():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
