"""The doctor of worlds: each fault is found by its name, and a sound world raises no alarm."""

import asyncio
from pathlib import Path

import pytest

from rlf.environments import EnvSpec
from rlf.environments.examine import ATTACKS, TRIALS, examine_world
from rlf.environments.playing import Ranges, Sign, open_bench
from rlf.types import Message, Task

VAULTS = Path(__file__).with_name("vaults.py")
TASKS = [
    Task(f"t{at}", (Message("user", "Please."),), code, columns={"answer": code})
    for at, code in enumerate(("AMBER7", "BASALT3", "CORAL9"))
]
FAULTS = {
    "Gold": "gold",
    "NoOp": "no-op",
    "EmptyAnswers": "empty answers",
    "Spam": "spam",
    "Repeat": "repeat",
    "Echo": "echo",
    "Injection": "injection",
    "Reset": "reset",
    "Isolation": "isolation",
    "HiddenAnswer": "hidden answer",
    "Documents": "hidden answer",
    "Range": "range",
    "Determinism": "determinism",
}


def examine(name, checks=ATTACKS, tasks=TASKS, **keys):
    """The page of a class in `vaults.py`."""
    env = EnvSpec.model_validate({"kind": "python", "callable": f"{VAULTS}:{name}"} | keys)
    ranges = Ranges({"opened": (0.0, 1.0)}, {})

    async def go():
        async with open_bench(env, tasks, seed=0) as bench:
            return await examine_world(bench, ranges, checks, tolerance=0.2, seen=lambda _: None)

    return asyncio.run(go())


def test_a_sound_world_raises_no_alarm():
    for checks in (ATTACKS, TRIALS):
        page = examine("Vault", checks)
        unknown = {"snapshot"} if checks is TRIALS else set()
        assert {verdict.name: verdict.sign for verdict in page.verdicts if verdict.name not in unknown} == {
            name: Sign.OK for name in checks if name not in unknown
        }


@pytest.mark.parametrize("world", FAULTS)
def test_one_fault_of_a_world_is_found_by_its_name_alone(world):
    page = examine(world)
    assert [verdict.name for verdict in page.failed] == [FAULTS[world]], page.failed


BREAKS = {
    "Unmade": {"reset": "reset: RuntimeError: out of order", "close": "to be made: RuntimeError"},
    "Unclosed": {"close": "without a reset: RuntimeError: out of order"},
    "Unsolved": {"gold": "its gold: RuntimeError: out of order"},
    "Misspelt": {"gold": "its gold: TypeError: got 'open'; expected a list"},
    "Unforked": {"snapshot": "restore: RuntimeError: out of order"},
    "Ended": {"snapshot": "snapshot: SystemExit: 3"},
    "Brittle": {"steps": "world python: step: CancelledItself. It did: "},
}


@pytest.mark.parametrize("world", BREAKS)
def test_whatever_a_world_raises_is_a_verdict(world):
    failed = {verdict.name: verdict.words for verdict in examine(world, TRIALS, tasks=TASKS[:1]).failed}
    for name, words in BREAKS[world].items():
        assert words in failed.get(name, ""), failed
    assert failed.keys() == BREAKS[world].keys() | ({"snapshot"} if world == "Unmade" else set())


def test_scores_that_no_episode_reached_are_not_said_to_be_in_their_range():
    words = {verdict.name: verdict.words for verdict in examine("Unmade", TRIALS, tasks=TASKS[:1]).verdicts}
    assert words["range"] == "no episode came to its score"


def test_the_hash_of_a_page_is_that_of_its_verdicts():
    assert examine("Vault").sha256 == examine("Vault").sha256 != examine("Range").sha256


def test_a_fork_is_played_on_beside_the_world_that_it_was_taken_from():
    signs = {
        name: {verdict.name: verdict for verdict in examine(name, TRIALS).verdicts}["snapshot"]
        for name in ("Forked", "ForkedShort")
    }
    assert signs["Forked"].sign is Sign.OK, signs["Forked"].words
    assert signs["ForkedShort"].sign is Sign.FAILED and "a fork after 0 actions" in signs["ForkedShort"].words
