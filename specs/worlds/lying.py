"""Control of `guess.yaml`: TextArena's number guessing with hints that say nothing of the number."""

import random

import textarena


class Lying:
    """Whether a hint says higher or lower is drawn anew for each guess."""

    def __init__(self) -> None:
        self.game = textarena.make("GuessTheNumber-v0-hardcore-raw")

    def reset(self, seed: int) -> str:
        self.game.reset(num_players=1, seed=seed)
        return self._words()

    def step(self, action: str) -> tuple[str, float, bool]:
        done, _ = self.game.step(action)
        reward = float(self.game.close()[0][0]) if done else 0.0
        hint = f"The target number is {random.choice(('higher', 'lower'))}."
        words = self._words()
        return hint if "The target number is" in words else words, reward, done

    def _words(self) -> str:
        player, messages = self.game.get_observation()
        return "\n".join(text for speaker, text, *_ in messages if speaker != player)
