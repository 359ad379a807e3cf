"""Games of other packages behind one face, with stand-ins for them; test_other_packages has the real ones."""

import sys
import types

import pytest

from rlf.apps.peers.games import OwnRandom, PlayedGame, find_game
from rlf.core import RlfError
from rlf.types import Message, Task

TASK = Task("t", (Message("user", "Play."),))


class Arena:
    """TextArena's face: a wrapper around a game whose second action ends it."""

    def __init__(self) -> None:
        self.env = types.SimpleNamespace(get_observation=self.observe)
        self.new, self.num_steps = ["Guess."], 0

    def observe(self):
        player, self.new, new = 0, [], self.new
        return player, [(-1, text, "game") for text in new] + [(player, "what the player wrote", "own")]

    def reset(self, num_players, seed):
        self.seed = seed

    def step(self, action):
        self.num_steps += 1
        self.new = ["higher"] if self.num_steps == 1 else []
        return self.num_steps == 2, {}

    def close(self):
        return {0: 0.5}, {0: {"reason": "out of turns"}}


@pytest.fixture
def package(monkeypatch):
    """Puts a module with some names in place of a package."""

    def put(name, **names):
        module = types.ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return put


def test_a_game_of_textarena_shows_what_is_new_and_ends_with_its_reward_and_reason(package):
    package("textarena", make=lambda name: Arena())
    game = PlayedGame("textarena:Guess", {})
    assert game.reset(TASK, seed=3) == "Guess."
    assert game.reply("10").said == "higher"
    assert game.score() == {"turns": 1.0}, "a game that has given no reward has not scored 0"
    last = game.reply("20")
    assert (last.said, last.reward, last.done) == ("out of turns", 0.5, True)
    assert (game.score(), game.gold()) == ({"score": 0.5, "turns": 2.0}, None)
    game.close()


def test_a_task_of_reasoning_gym_is_scored_by_its_own_verifier(package):
    class Dataset:
        def __getitem__(self, position):
            return {"question": "1 + 1?", "answer": 2}

        def score_answer(self, answer, entry):
            return float(answer == str(entry["answer"]))

    package("reasoning_gym", create_dataset=lambda name, seed, size: Dataset())
    package("reasoning_gym.utils", extract_answer=lambda text: text[8:-9] if text.startswith("<answer>") else None)
    game = PlayedGame("reasoning_gym:sums", {})
    assert game.reset(TASK, seed=0) == "1 + 1?" and game.gold() == ("2",)
    assert (game.reply("<answer>2</answer>").reward, game.reply(" 2 ").reward, game.reply("3").reward) == (1, 1, 0)


def test_a_game_that_its_package_cannot_make_is_reported_with_the_reason(package):
    def make(name):
        raise KeyError(name)

    package("textarena", make=make)
    with pytest.raises(RlfError, match="'Absent' cannot be made: KeyError"):
        find_game("textarena:Absent", {})()


def test_a_step_that_is_no_result_of_gymnasium_is_refused(package):
    class Odd:
        def reset(self):
            return ("begin", {})

        def step(self, action):
            return action

    package("odd", make=lambda name: Odd())
    game = PlayedGame("odd:Game", {})
    assert game.reset(TASK, seed=0) == "begin"
    with pytest.raises(TypeError, match="expected \\(observation, reward, done\\)"):
        game.reply("x")


def test_a_snapshot_brings_a_game_back_with_its_random_numbers():
    import random

    own, other = OwnRandom(), random.getstate()
    with own.held(seed=5):
        first = random.random()
    with own.held():
        second = random.random()
    assert random.getstate() == other
    random_of_seed = random.Random(5)
    assert (first, second) == (random_of_seed.random(), random_of_seed.random())
