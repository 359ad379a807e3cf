"""Bad rewards are found with their cause, good ones are left alone: every case of `attack_cases.yaml`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlf.apps.attack.attack import Attack, attack_reward
from rlf.apps.attack.world import AttackWorld, open_world
from rlf.rewards.function import RewardFunction
from rlf.rewards.term import Term
from rlf.runs.declared import rescoring_spec

HERE = Path(__file__).parent
CASES = yaml.safe_load((HERE / "attack_cases.yaml").read_text())
SPEC = f"""
name: attacked
model: {{path: builtin:tiny}}
data: {{train: {{path: rows.jsonl, prompt: question, answer: answer}}}}
tools:
  - name: search
    description: Finds a passage.
    inputSchema: {{type: object, properties: {{query: {{type: string}}}}, required: [query]}}
    target: {{kind: python, callable: "{HERE}/attack_graders.py:search", isolation: inline}}
rewards: [{{kind: rule, name: right, rule: exact_match}}]
rollout: {{max_turns: 5, max_total_tokens: 600}}
train: {{algorithm: grpo}}
"""
MIN_FOUND = 41
"""Of the 43 bad rewards."""


@dataclass(frozen=True)
class Case:
    name: str
    data: str
    rewards: Sequence[Mapping[str, Any]]
    causes: tuple[str, ...]
    """What a verdict may name; empty for a good reward."""


BAD = [Case(each["name"], each["data"], each["rewards"], tuple(each["causes"])) for each in CASES["bad"]]
GOOD = [Case(each["name"], each["data"], each["rewards"], ()) for each in CASES["good"]]


def terms(case: Case) -> list[Term]:
    return [Term.model_validate(each, context={"folder": HERE}) for each in case.rewards]


async def attacked(world: AttackWorld, case: Case) -> Attack:
    async with RewardFunction(terms(case), world.context) as reward:
        return await attack_reward(world, reward)


async def attack_all(folder: Path, cases: Sequence[Case]) -> dict[str, Attack]:
    found = {}
    for data, rows in CASES["questions"].items():
        (folder / data).mkdir()
        (folder / data / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / data / "spec.yaml").write_text(SPEC)
        async with open_world(rescoring_spec([folder / data / "spec.yaml"], []), 4) as world:
            found |= {case.name: await attacked(world, case) for case in cases if case.data == data}
    return found


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Attack]:
    return asyncio.run(attack_all(tmp_path_factory.mktemp("attack"), [*BAD, *GOOD]))


def test_nearly_all_bad_rewards_are_found(attacks: Mapping[str, Attack]) -> None:
    missed = {case.name: attacks[case.name].verdict for case in BAD if not attacks[case.name].findings}
    assert len(BAD) - len(missed) >= MIN_FOUND, missed


def test_no_good_reward_is_found_bad(attacks: Mapping[str, Attack]) -> None:
    assert {case.name: attacks[case.name].verdict for case in GOOD if not attacks[case.name].is_passed} == {}


def test_a_found_reward_has_its_cause_named(attacks: Mapping[str, Attack]) -> None:
    named = {case.name: {str(finding.cause) for finding in attacks[case.name].findings} for case in BAD}
    assert {case.name: named[case.name] for case in BAD if named[case.name].isdisjoint(case.causes)} == {}
