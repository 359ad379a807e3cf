"""A taskset of number guessing for the Env of verifiers' own TextArena tasksets, such as its `wordle`: `TextArenaEnv`.

It has no word lists to download, and TextArena comes from the folder that the variable TEXTARENA names.
"""

import os
import random
import sys

import verifiers.v1 as vf

sys.path.append(os.environ["TEXTARENA"])

import textarena as ta
from verifiers.v1.tasksets.textarena import TextArenaData, TextArenaEnv, TextArenaTask


class Config(vf.TasksetConfig):
    game: str = "GuessTheNumber-v0-hardcore"


class Numbers(vf.Taskset[TextArenaTask, Config]):
    INFINITE = True

    def load(self):
        random.seed(0)
        game = ta.make(env_id=self.config.game)
        game.reset(num_players=1)
        prompt = str(game.get_observation()[1]).removeprefix("\n[GAME] ")
        number = 0
        while True:
            yield TextArenaTask(TextArenaData(prompt=prompt, info={"game": self.config.game, "seed": number}))
            number += 1


__all__ = ["Numbers", "TextArenaEnv"]
