"""The doctor of worlds: each fault is found by its name, and a sound world raises no alarm."""

import asyncio
import json
import subprocess
import time
from pathlib import Path

import pytest

from rlf.apps.worlds.examine import ATTACKS, TRIALS, examine_world
from rlf.apps.worlds.trial import Sign
from rlf.core import RlfError
from rlf.environments import EnvSpec, WorldPool
from rlf.environments.episode import CLOSE_S
from rlf.environments.playing import Ranges, open_bench
from rlf.lineage.process import is_gone, process_of
from rlf.processes.fork_server import run_apart
from rlf.types import Message, Task

from ..processes import Process, call_rlf

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


PRINTS = """
import os

class World:
    def look(self) -> str:
        "Looks."
        print("looked")
        os.write(1, b"wrote")
        return "Nothing."

    def reset(self):
        print("reset")
        return "You wake up."

    def score(self):
        print("scored")
        return {"won": 0.0}


class Ends(World):
    def score(self):
        os._exit(0)


class EndsAtOnce(World):
    def reset(self):
        os._exit(0)


class Dies(World):
    def reset(self):
        os.kill(os.getpid(), 9)
"""


@pytest.fixture
def printing(tmp_path):
    """Runs a command on a class of a file that prints, in a process of its own."""
    (tmp_path / "own.py").write_text(PRINTS)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Begin."}\n')

    def run(command, name, *arguments):
        spec = tmp_path / f"{name}.yaml"
        spec.write_text(
            f"env: {{kind: python, callable: 'own.py:{name}'}}\nrewards: [{{kind: env, name: won, score: won}}]\n"
            "data: {train: {path: rows.jsonl, prompt: prompt, answer: null}}\n"
        )
        with Process(call_rlf, "env", command, str(spec), *arguments, folder=tmp_path) as process:
            printed, faults = process.communicate(timeout=120)
            return process.wait(), printed, faults

    return run


def test_what_a_world_prints_is_never_on_stdout(printing):
    for command in ("prove", "attack", "show", "play"):
        _, printed, faults = printing(command, "World", "--json")
        assert json.loads(printed)["command"] == f"env {command}", (command, printed)
        assert command == "play" or "reset" in faults, faults


@pytest.mark.parametrize(
    ("world", "point", "words"),
    [
        ("Ends", "range", "SystemExit: it called os._exit(0)"),
        ("EndsAtOnce", "reset", "SystemExit: it called os._exit(0)"),
        ("Dies", "contained", "the world ended the process that tries it (SIGKILL), at the point '"),
    ],
)
@pytest.mark.parametrize("command", ["prove", "attack"])
def test_a_world_that_ends_its_process_is_no_sound_world(printing, command, world, point, words):
    code, printed, _ = printing(command, world, "--json")
    (verdict,) = [one for one in json.loads(printed)["data"]["verdicts"] if one["name"] == point]
    assert code == 3 and verdict["sign"] == "failed", printed
    assert words in verdict["words"]


def test_work_apart_that_holds_its_event_loop_is_ended():
    async def hold(tell):
        tell("begun")
        while True:
            pass

    seen = []
    with pytest.raises(TimeoutError, match="its event loop stood still for 3 s"):
        run_apart(hold, seen.append, still_s=3)
    assert seen == ["begun"]


def test_processes_that_work_apart_has_left_are_ended_with_it():
    async def leave(tell):
        return process_of(subprocess.Popen(["sleep", "600"]).pid)  # noqa: ASYNC220 - as a class of a world does

    left, started = run_apart(leave, still_s=60), time.monotonic()
    while not is_gone(left) and time.monotonic() < started + 10:
        time.sleep(0.01)  # until the kernel has carried out the signal
    assert is_gone(left)


def test_a_fault_of_work_apart_is_raised_here_and_its_result_is_a_value():
    async def fail(tell):
        raise RlfError("no such world.")

    async def sum_up(tell):
        await asyncio.sleep(0)
        return {"sum": 2**70, "text": "x" * 500_000}

    with pytest.raises(RlfError, match=r"no such world\."):
        run_apart(fail, still_s=60)
    assert run_apart(sum_up, still_s=60) == {"sum": 2**70, "text": "x" * 500_000}


def test_the_prompt_of_a_world_is_shown_with_its_first_words(printing):
    code, printed, _ = printing("show", "World")
    assert code == 0 and "You wake up." in printed
    code, printed, faults = printing("show", "EndsAtOnce")
    assert code == 0 and "look" in printed and "its first words are not shown" in faults


def test_a_person_sees_that_a_world_ended_its_process(printing):
    code, printed, faults = printing("play", "Ends")
    assert code == 3 and "0 actions; scores: none" in printed
    assert "world python: score: the world's process ended (exit code 0)" in faults


class Costs:
    """Pays 1 for the right word, takes 1 for a wrong one."""

    pays = 0.0

    def say(self, word: str) -> str:
        """Say a word."""
        self.pays = 1.0 if word == "AMBER7" else -1.0
        return "Heard."

    def gold(self):
        """What solves it."""
        return [{"name": "say", "arguments": {"word": "AMBER7"}}]

    def score(self):
        """What it came to."""
        return {"won": self.pays}


class Bribes(Costs):
    """Pays half for nothing."""

    pays = 0.5


@pytest.mark.parametrize(
    ("world", "bounds", "alarms"),
    [
        ("Costs", (-1.0, 1.0), []),
        ("Bribes", (-1.0, 1.0), ["no-op"]),
        ("Bribes", (0.0, 1.0), ["no-op"]),
        ("Costs", (-1.0, 0.0), ["no-op"]),
    ],
)
def test_doing_nothing_may_earn_no_reward_where_wrong_actions_cost_some(world, bounds, alarms):
    env = EnvSpec.model_validate({"kind": "python", "callable": f"{__name__}:{world}"})

    async def go():
        async with open_bench(env, TASKS[:1], seed=0) as bench:
            checks = {name: ATTACKS[name] for name in ("no-op", "spam", "repeat", "echo")}
            ranges = Ranges({"won": bounds}, {})
            return await examine_world(bench, ranges, checks, tolerance=0.2, seen=lambda _: None)

    assert [verdict.name for verdict in asyncio.run(go()).failed][:1] == alarms


class NeverCloses:
    """Hangs as it closes."""

    def look(self) -> str:
        """Look."""
        return "Nothing."

    def score(self):
        """Nothing."""
        return 0.0

    async def close(self):
        """Takes for ever."""
        await asyncio.Event().wait()


def test_worlds_that_do_not_close_are_waited_for_together():
    env = EnvSpec.model_validate({"kind": "python", "callable": f"{__name__}:NeverCloses"})

    async def go():
        async with WorldPool(env, seed=0) as worlds:
            for number in range(8):
                await worlds.open(f"t{number}", TASKS[0]).reset()
            began = time.monotonic()
        return time.monotonic() - began

    assert CLOSE_S <= asyncio.run(go()) < 4 * CLOSE_S


def test_the_hash_of_a_page_is_that_of_its_verdicts():
    assert examine("Vault").sha256 == examine("Vault").sha256 != examine("Range").sha256


def test_a_fork_is_played_on_beside_the_world_that_it_was_taken_from():
    signs = {
        name: {verdict.name: verdict for verdict in examine(name, TRIALS).verdicts}["snapshot"]
        for name in ("Forked", "ForkedShort")
    }
    assert signs["Forked"].sign is Sign.OK, signs["Forked"].words
    assert signs["ForkedShort"].sign is Sign.FAILED and "a fork after 0 actions" in signs["ForkedShort"].words
