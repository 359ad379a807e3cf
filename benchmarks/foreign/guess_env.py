"""A package of verifiers v1 whose Env plays TextArena's number guessing: the game is the user, and gives the reward."""

import random

import textarena
import verifiers.v1 as vf

GAME = "GuessTheNumber-v0-hardcore"


class Data(vf.TaskData):
    seed: int


class Guess(vf.Task[Data]):
    pass


class EnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(max_turns=10)


def begin(seed):
    random.seed(seed)
    game = textarena.make(GAME)
    game.reset(num_players=1, seed=seed)
    plain = game
    while hasattr(plain, "env"):  # without the wrapper that repeats the history
        plain = plain.env
    return game, plain


def words(game):
    player, messages = game.get_observation()
    return "\n".join(text for speaker, text, *_ in messages if speaker != player)


class GuessEnv(vf.Env[EnvConfig]):
    async def run(self, task, agents):
        game, plain = begin(task.data.seed)
        words(plain)
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                done, _ = game.step(action=segment.last_reply)
                if done:
                    rewards, _ = game.close()
                    interaction.trace.record_reward("found", float(rewards[0]), 1.0)
                    return
                segment = await interaction.turn(words(plain))
        interaction.trace.record_reward("found", 0.0, 1.0)


class Guesses(vf.Taskset[Guess, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        seed = 0
        while True:
            yield Guess(Data(prompt=words(begin(seed)[1]), seed=seed), self.config.task)
            seed += 1


__all__ = ["GuessEnv", "Guesses"]
