"""Programs held against unit tests: what a right one earns, and what a cheat tries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from rlf.rewards import RewardContext, RewardFunction, Term, TrajectoryFacts
from rlf.sandbox import LevelChoice
from rlf.sandbox.spec import SandboxSpec
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Scored

UNSAFE = SandboxSpec(level=LevelChoice.PROCESS, allow_unsafe=True).model_dump()
"""So that these tests run on every machine; levels are tested with the sandbox."""
TOOL = {
    "name": "tester",
    "description": "Runs a test of a program.",
    "hidden": True,
    "inputSchema": {
        "type": "object",
        "properties": {"program": {"type": "string"}, "test": {"type": "string"}},
        "required": ["program", "test"],
    },
    "target": {"kind": "code", "argument": "test", "program": "program", "sandbox": UNSAFE | {"limits": {"wall_s": 5}}},
}
TERM = {
    "kind": "verify",
    "name": "tests",
    "tool": "tester",
    "arguments": {"program": "{{ code }}", "test": "{{ test }}"},
    "expected": {"column": "tests"},
    "compare": "tests_passed",
}
TESTS = (
    "assert f(2) == 4",
    "assert f([1]) == [1, 1] and not f(0)",
    "for x in map(f, range(3)):\n    assert x in (0, 2, 4)\nassert f(-1) < 0",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(3), 6)\nunittest.main()",
)


def scored(programs: Mapping[str, str], tests: tuple[str, ...] = TESTS) -> dict[str, Scored]:
    async def all_of_them() -> list[Scored]:
        facts = [{"columns": {"tests": tests}, "answer": f"So:\n```python\n{each}\n```"} for each in programs.values()]
        trajectories = [TrajectoryFacts.model_validate(each).trajectory(str(at)) for at, each in enumerate(facts)]
        async with Executor([ToolDeclaration.model_validate(TOOL)]) as tools:
            context = RewardContext(tools.for_rewards, 0, lambda level, text: None)
            async with RewardFunction([Term.model_validate(TERM)], context) as function:
                return await function.score_all(trajectories, step=1)

    return dict(zip(programs, asyncio.run(all_of_them()), strict=True))


def test_a_right_program_passes_and_a_half_right_one_has_its_share() -> None:
    programs = {"right": "def f(x):\n    return 2 * x", "half": "def f(x):\n    return x + 2", "none": "(", "other": ""}
    rewards = {name: each.reward for name, each in scored(programs).items()}
    assert rewards == {"right": 1.0, "half": 0.25, "none": 0.0, "other": 0.0}


ALWAYS = """
class Any:
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __contains__ = lambda *_: True
    __bool__ = lambda self: True
    __hash__ = lambda self: 4
    __sub__ = __rsub__ = __abs__ = __round__ = __add__ = __invert__ = lambda self, *_: 0
    __instancecheck__ = __class_getitem__ = lambda *_: True
"""
SOURCES = (Path(__file__).parent / "cheats.txt").read_text(encoding="utf-8").replace("ALWAYS\n", ALWAYS)
CHEATS = {name: source for name, _, source in (part.partition("\n") for part in SOURCES.split("### ")[1:])}


def test_no_cheat_passes_a_test() -> None:
    """Nothing but a value passes a test, and none of these gives a right one."""
    assert len(CHEATS) == SOURCES.count("### ") > 20
    found = scored(CHEATS)
    assert {name: each.reward for name, each in found.items() if each.reward} == {}
    unscorable = {name for name, each in found.items() if each.reward is None}
    assert unscorable == set(), [found[name].scores[0].reason for name in unscorable]


def test_what_a_test_of_its_own_hands_over_cannot_swallow_its_assertions() -> None:
    tests = ("def check(x):\n    assert x == 4\napply(check, 2)",)
    programs = {
        "honest": "def apply(g, x):\n    g(2 * x)",
        "wrong": "def apply(g, x):\n    g(x)",
        "swallows": "def apply(g, x):\n    try:\n        g(x)\n    except BaseException:\n        pass",
        "hands over what equals": f"{ALWAYS}def apply(g, x):\n    try: g(Any())\n    except BaseException: pass",
        "looks inside": "def apply(g, x):\n    g.__globals__['check'] = print\n    g.__code__ = print.__code__",
    }
    assert {name: each.reward for name, each in scored(programs, tests).items()} == {
        "honest": 1.0,
        "wrong": 0.0,
        "swallows": 0.0,
        "hands over what equals": 0.0,
        "looks inside": 0.0,
    }


def test_a_function_that_works_in_place_is_tested_by_what_it_leaves_and_one_that_returns_a_value_changes_nothing() -> (
    None
):
    tests = (
        "xs = [3, 1, 2]\nassert f(xs) is None\nassert xs == [1, 2, 3]",
        "d = {'a': [2, 1]}\ns = {1}\nassert f(*([9, 8], d), more=s) is None\nassert d['a'] == [1, 2] and s == {1, 5}",
    )
    programs = {
        "in place": "def f(xs, d=None, more=None):\n    xs.sort()\n    if d: d['a'].sort(); more.add(5)",
        "does nothing": "def f(xs, d=None, more=None):\n    pass",
        "rebinds": "def f(xs, d=None, more=None):\n    xs = sorted(xs)",
        "returns": "def f(xs, d=None, more=None):\n    xs.sort()\n    return xs",
    }
    assert {name: each.reward for name, each in scored(programs, tests).items()} == {
        "in place": 1.0,
        "does nothing": 0.0,
        "rebinds": 0.0,
        "returns": 0.0,
    }


def test_a_function_that_works_in_place_and_returns_a_value_is_tested_by_the_argument_that_the_test_names() -> None:
    tests = (
        "xs = in_place([3, 2, 2, 3])\nk = f(xs, 3)\nassert k == 2 and xs[:k] == [2, 2]",
        "d, other = in_place({'a': 1}), [1]\nassert f(other, 9, d=d) == 1 and d == {'a': 2} and other == [1]",
    )
    programs = {
        "both": "def f(xs, x, d=None):\n    xs[:] = [y for y in xs if y != x]\n"
        "    if d: d['a'] = 2; xs.clear(); return 1\n    return len(xs)",
        "returns only": "def f(xs, x, d=None):\n    return 1 if d else len([y for y in xs if y != x])",
        "names it": "in_place = lambda xs: [2, 2]\ndef f(xs, x, d=None):\n    return 2",
    }
    rewards = {name: each.reward for name, each in scored(programs, tests).items()}
    assert rewards == {"both": 1.0, "returns only": 0.0, "names it": 0.0}


def test_a_call_that_returns_a_value_changes_nothing_of_its_test() -> None:
    cheats = {"empties": "def f(xs):\n    xs.clear()\n    return xs"}
    (cheat,) = scored(cheats, ("xs = [2, 1]\nassert f(xs) == sorted(xs)",)).values()
    assert cheat.reward == 0.0


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"program": "test"}, "`program` is an argument of its own"),
        ({"program": "program", "session": True}, "without `session`"),
        ({"program": "program", "sandbox": {"level": "remote", "url": "http://localhost:1"}}, "at no `level: remote`"),
    ],
)
def test_a_tool_that_cannot_keep_program_and_test_apart_is_refused(target: dict[str, object], words: str) -> None:
    declared = {**TOOL, "target": {"kind": "code", "argument": "test", **target}}
    with pytest.raises(ValidationError, match=words):
        ToolDeclaration.model_validate(declared)


def test_a_schema_without_the_program_is_complained_of() -> None:
    target = ToolDeclaration.model_validate(TOOL).target
    properties = {"test": {"type": "string"}}
    (said,) = target.complaints({"type": "object", "properties": properties, "required": ["test"]})
    assert "no property 'program'" in said
