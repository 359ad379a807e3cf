"""Tasksets of verifiers v1, in the environment of `.venv/worlds/verifiers` that has the package."""

import sys
from pathlib import Path

import pytest

from rlf.apps.peers.workers import verifiers_tasks
from rlf.environments import EnvSpec
from rlf.types import Message, StopReason, Task

from ...environments.conftest import STOP, call
from ...warm import warm_python

PYTHON = Path(sys.prefix) / "worlds" / "verifiers" / "bin" / "python"
TASKSET = Path(__file__).with_name("verifiers_capitals.py")
SALES = Path(__file__).with_name("verifiers_till.py")
GUESS = Path(__file__).with_name("verifiers_guess.py")
IMAGE = """[
    vf.UserMessage(content=[vf.ImageUrlContentPart(image_url=vf.ImageUrlSource(url="data:image/png;base64,"))])
]"""
SECOND = Task("t", (Message("user", "Play."),), columns={"index": 1})
HIGHER, LOWER = "The target number is higher.", "The target number is lower."


def find_python():
    """A Python that has imported verifiers; skips the test where it is not installed."""
    if not list(PYTHON.parents[1].glob("lib/*/site-packages/verifiers")):
        pytest.skip(f"{PYTHON} has no verifiers: `make .venv/worlds/ready` installs it")
    return warm_python(*verifiers_tasks._USED, python=str(PYTHON))


@pytest.fixture
def env():
    return {"kind": "verifiers", "file": str(TASKSET), "python": find_python()}


def test_a_taskset_of_a_dozen_lines_asks_and_scores(played, env):
    task = Task("t", (Message("user", "Answer."),), columns={"index": 1})
    right, wrong = played(env, [f"Rome{STOP}"], [f"Paris, or so they say in books{STOP}"], task=task)[0]
    assert right.error is None, right.error
    assert right.world.observation == "The capital of Italy?" and right.stop is StopReason.ENV_DONE
    assert right.world.scores == {"exact": 1.0, "short": 1.0, "reward": 1.5}
    assert wrong.world.scores == {"exact": 0.0, "short": 0.0, "reward": 0.0}


def test_a_toolset_shares_the_state_of_its_trajectory_between_setup_and_finalize(played, env):
    task = Task("t", (Message("user", "Sell."),), columns={"index": 1})
    rings = [[1, 2], [0, 5], [20]]
    scripts = [[*(call("till_ring", count=count) + STOP for count in counts), f"Sold.{STOP}"] for counts in rings]
    sold, refused, full = played(env | {"file": str(SALES)}, *scripts, task=task)[0]
    assert [one.error for one in (sold, refused, full)] == [None] * 3
    assert [one.world.scores for one in (sold, refused, full)] == [
        {"drawer": 22.0, "calls": 2.0, "reward": 22.0},
        {"drawer": 30.0, "calls": 2.0, "reward": 30.0},
        {"drawer": 90.0, "calls": 1.0, "reward": 90.0},
    ]
    texts = [one.result.text for turn in sold.turns for one in turn.calls]
    assert texts == ["The total is 4.", "The total is 12."]
    assert "count is at least 1" in refused.turns[0].calls[0].result.text
    assert sold.stop is full.stop is StopReason.ENV_DONE and len(full.turns) == 1, "`is_full` ends the task"


def test_what_only_verifiers_can_run_is_refused_by_name(env):
    (complaint,) = EnvSpec.model_validate(env | {"file": str(SALES), "args": {"guarded": True}}).complaints()
    for name in ("toolset Till is a server at a `url`", "NEEDS_CONTAINER", "Guarded.censor is a `@vf.intercept`"):
        assert name in complaint


def test_a_package_that_is_played_by_a_harness_of_its_own_is_refused(env, tmp_path):
    file = tmp_path / "with_clerk.py"
    file.write_text(SALES.read_text().replace('__all__ = ["Sales"]', '__all__ = ["Sales", "Clerk"]'))
    (complaint,) = EnvSpec.model_validate(env | {"file": str(file)}).complaints()
    assert "exports a Harness of its own" in complaint


def test_a_package_is_played_by_its_own_env_with_the_tools_of_its_toolsets(played, env, tmp_path):
    file = tmp_path / "with_haggle.py"
    file.write_text(SALES.read_text().replace('__all__ = ["Sales"]', '__all__ = ["Sales", "Haggle"]'))
    (sold,), _ = played(env | {"file": str(file)}, [call("till_ring", count=1) + STOP, f"Sold.{STOP}"], task=SECOND)
    assert (sold.error, sold.world.scores["haggled"], sold.world.scores["drawer"]) == (None, 1.0, 14.0)


def test_an_env_of_a_package_is_the_user_and_gives_the_reward(played, env):
    wrong = f"5{STOP}"
    scripts = [[wrong, f"2{STOP}"], [wrong] * 4, [wrong, f"BREAK{STOP}"]]
    found, lost, broken = played(env | {"file": str(GUESS)}, *scripts, task=SECOND)[0]
    assert found.error is None, found.error
    assert found.world.observation == "Say one.\n\nGuess my number."
    assert [turn.world.reply for turn in found.turns] == ["Wrong.", None] and found.stop is StopReason.ENV_DONE
    assert found.world.scores == {"turns": 2.0, "ended": 1.0, "found": 1.0, "reward": 2.0}
    assert lost.world.scores == {"turns": 4.0, "ended": 0.0, "found": 0.0, "reward": 0.0}, "its limit of four turns"
    assert lost.stop is StopReason.ENV_DONE and "the dice are gone" in broken.error
    (cut,), _ = played(env | {"file": str(GUESS)}, [wrong], task=SECOND, max_turns=1)
    assert cut.world.scores == {"turns": 1.0, "ended": 0.0, "found": 0.0, "reward": 0.0}
    (twice,), _ = played(env | {"file": str(GUESS), "args": {"again": True}}, [f"2{STOP}"], task=SECOND)
    assert "GuessEnv.run plays its agent twice" in twice.error


def test_an_env_that_opens_the_conversation_says_the_first_words(played, env):
    third = Task("t", (Message("user", "Play."),), columns={"index": 2})
    (found,), _ = played(env | {"file": str(GUESS)}, [f"3{STOP}"], task=third)
    assert (found.error, found.world.observation) == (None, "Say one.\n\nGuess it.")
    assert found.world.scores["reward"] == 2.0


@pytest.mark.parametrize(
    ("written", "instead", "why"),
    [
        (
            "player: vf",
            "rival: vf.AgentConfig = vf.AgentConfig()\n    player: vf",
            "GuessEnv has the seats rival, player",
        ),
        ("max_turns=4", 'harness=vf.HarnessConfig(id="codex")', "the seat player has the harness codex"),
        ('"Guess my number."', IMAGE, "task 0: a message has a part of image_url; only text is supported"),
    ],
)
def test_what_an_env_asks_beyond_one_model_and_text_is_refused_by_name(env, tmp_path, written, instead, why):
    file = tmp_path / "asking.py"
    file.write_text(GUESS.read_text().replace(written, instead))
    (complaint,) = EnvSpec.model_validate(env | {"file": str(file)}).complaints()
    assert why in complaint


def test_the_env_that_verifiers_has_for_textarena_plays_a_game(played, env, monkeypatch):
    packages = next((PYTHON.parents[2] / "text").glob("lib/python3.*/site-packages/textarena"), None)
    if packages is None:
        pytest.skip("there is no TextArena: `make .venv/worlds/ready` installs it")
    monkeypatch.setenv("TEXTARENA", str(packages.parent))
    numbers = env | {"file": str(Path(__file__).with_name("verifiers_numbers.py"))}
    (probe,), _ = played(numbers, [f"[{number}]{STOP}" for number in range(1, 10)], task=SECOND, max_turns=9)
    assert probe.error is None and {turn.world.reply for turn in probe.turns[:-1]} <= {HIGHER, LOWER}
    assert "number between 1 and 50" in probe.world.observation
    assert probe.world.scores["reward"] == probe.world.scores["game_reward"]


def test_a_taskset_that_cannot_be_loaded_is_a_fault_before_the_run(env):
    (complaint,) = EnvSpec.model_validate(env | {"args": {"no_such_field": 1}}).complaints()
    assert "the taskset cannot be loaded" in complaint


def test_a_python_without_verifiers_is_named():
    spec = EnvSpec.model_validate({"kind": "verifiers", "file": str(TASKSET)})
    assert "No module named 'verifiers'" in spec.complaints()[0]
