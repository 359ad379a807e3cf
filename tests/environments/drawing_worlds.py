"""Worlds as written for TRL, which make their tasks by themselves from Python's shared random numbers."""

import random


class Dial:
    """Is scored by `get_reward`, as TRL's newer classes are."""

    def reset(self, **kwargs) -> str:
        self.shown, self.wanted = 0, random.randint(1, 6)
        return f"Turn the dial to {self.wanted}."

    async def get_reward(self) -> float:
        return float(self.shown == self.wanted)

    def turn(self, by: int) -> int:
        """
        Turns the dial.

        Args:
            by: How far.

        Returns:
            What it shows.
        """
        self.shown += by
        return self.shown


class Dice:
    """Has a number that a reward function reads, under the name of a method."""

    def reset(self, **kwargs) -> str:
        self.score, self.done = 0.0, False
        return f"score={self.score}"

    def roll(self) -> str:
        """Rolls a die, and adds it up."""
        self.score += random.randint(1, 6)
        return f"score={self.score}"
