"""Text worlds: what the model answers is the action, and what comes back is the user's next message."""

from pathlib import Path

import pytest

from rlf.apps.peers.games import PlayedGame
from rlf.environments import EnvSpec
from rlf.types import Message, StopReason, Task

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


def test_words_that_make_a_game_raise_are_its_own_failure_unless_the_spec_names_what_it_raises(played):
    env = {"kind": "text", "make": f"{PACKAGE}:Number"}
    ((failed,), _) = played(env, [f"one{STOP}"], max_turns=3)
    assert failed.stop is StopReason.INFRA_FAILURE and "world text: reply: ValueError" in failed.error
    ((ended,), _) = played({**env, "invalid": {"raises": ["ValueError"], "reward": -1}}, [f"one{STOP}"], max_turns=3)
    assert ended.stop is StopReason.ENV_DONE and ended.world.scores == {"score": -1.0, "turns": 1.0}
    assert ended.turns[0].world.reply.startswith("invalid action: ValueError: invalid literal")
    ((other,), _) = played({**env, "invalid": {"raises": ["KeyError"]}}, [f"one{STOP}"], max_turns=3)
    assert other.stop is StopReason.INFRA_FAILURE
    all_of_them = EnvSpec.model_validate({**env, "invalid": {"raises": ["Exception"]}})
    assert "which every failure of the game is" in all_of_them.static_complaints()[0]


def test_a_game_that_init_begins_is_made_for_its_row(played):
    env = {"kind": "text", "make": f"{GAMES}:Rows", "args": {"env_config": {"hint": "Count."}}}
    task = Task("t", (Message("user", "2 + 2?"),), columns={"reward_spec": {"ground_truth": "4"}})
    assert EnvSpec.model_validate(env).complaints() == []
    right, wrong = played(env, [f"5{STOP}", f"4{STOP}"], [f"5{STOP}", f"6{STOP}"], task=task)[0]
    assert right.error is None and right.world.observation == "Count."
    assert [turn.world.reply for turn in right.turns] == ["Again.", None]
    assert [turn.world.reward for turn in right.turns] == [0.1, 1.0]
    assert (right.stop, wrong.stop) == (StopReason.ENV_DONE, StopReason.ENV_DONE)
    assert (right.world.scores["score"], wrong.world.scores["score"]) == (1.1, 0.2)
    ((rewritten,), _) = played({"kind": "text", "make": f"{GAMES}:Rewriting"}, [f"4{STOP}"], task=task)
    assert "its init rewrites the prompt" in rewritten.error
    ((rowless,), _) = played(env, [f"4{STOP}"])
    assert "KeyError: 'reward_spec'" in rowless.error


def test_a_game_that_pickle_does_not_bring_back_has_no_snapshots():
    games = {name: PlayedGame(f"{PACKAGE}:{name}", {}) for name in ("Number", "Wrapped")}
    for game in games.values():
        game.reset(Task("t", ()), 0)
    assert games["Number"].snapshot() is not None and games["Wrapped"].snapshot() is None


def test_what_cannot_be_played_is_a_fault_before_the_run():
    misfit = EnvSpec.model_validate({"kind": "text", "make": f"{PACKAGE}:Number-v0", "args": {"most": 0}})
    assert "cannot be reset: ValueError" in misfit.complaints()[0]
    assert "expected `package:id`" in EnvSpec.model_validate({"kind": "text", "make": "chess"}).static_complaints()[0]


def test_an_edited_file_of_a_game_is_another_source(tmp_path):
    file = tmp_path / "game.py"
    env = EnvSpec.model_validate({"kind": "text", "make": f"{file}:Game"})
    file.write_text("class Game: ...\n")
    before = env.source_hash()
    file.write_text("class Game: pass\n")
    assert env.source_hash() != before
