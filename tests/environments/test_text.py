"""Text worlds: what the model answers is the action, and what comes back is the user's next message."""

from pathlib import Path

import pytest

from rlf.environments import EnvSpec
from rlf.types import StopReason

from .conftest import STOP

GAMES = Path(__file__).with_name("gym_like.py")
PACKAGE = "tests.environments.gym_like"
TRIES = [f"{guess}{STOP}" for guess in (1, 20, 2, 19, 3)]


@pytest.mark.parametrize("make", [f"{PACKAGE}:Number-v0", f"{PACKAGE}:Short", f"{GAMES}:Number"])
def test_a_game_is_played_in_turns_until_it_is_over(played, make):
    env = {"kind": "text", "make": make}
    ((trajectory,), _) = played(env, [f"{guess}{STOP}" for guess in range(1, 21)], max_turns=20)
    assert trajectory.world.observation == "Guess my number, 1 to 20."
    assert trajectory.stop is StopReason.ENV_DONE
    assert trajectory.turns[-1].world.reply.startswith("Right.")
    assert trajectory.world.scores == {"score": 1.0, "turns": float(len(trajectory.turns))}


def test_games_that_draw_from_shared_random_numbers_do_not_disturb_each_other(played):
    env = {"kind": "text", "make": f"{PACKAGE}:Number"}
    alone = played(env, TRIES, max_turns=5)[0]
    together = played(env, TRIES, TRIES, TRIES, max_turns=5)[0]
    words = [[turn.world.reply for turn in trajectory.turns] for trajectory in [*alone, *together]]
    assert len(words) == 4 and all(one == words[0] for one in words)


def test_what_cannot_be_played_is_a_fault_before_the_run():
    misfit = EnvSpec.model_validate({"kind": "text", "make": f"{PACKAGE}:Number-v0", "args": {"most": 0}})
    assert "cannot be reset: ValueError" in misfit.complaints()[0]
    assert "expected `package:id`" in EnvSpec.model_validate({"kind": "text", "make": "chess"}).static_complaints()[0]
