"""Demonstrations of number guessing: games as TextArena words them, guesses by a habit, and the words as tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from typing import NamedTuple

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.tiny.demonstrations import Demonstration
from benchmarks.embedded.tiny.layout import message_ids
from benchmarks.embedded.tiny.tokenizer import NUMBERS, make_tokenizer

GAME, PROMPT = "GuessTheNumber-v0-hardcore", "Play."
NUM_NUMBERS, NUM_GUESSES = 50, 10
HIGHER, LOWER = "higher", "lower"
_CHAT = ("user\n", "assistant\n", "\n\n", "\n")
_PIECE = r" ?[A-Za-z]+|\d{1,2}|[^A-Za-z\d]"


class Wording(NamedTuple):
    """The words of TextArena."""

    opening: str
    hints: Mapping[str, str]
    """After a wrong guess, by where the number is."""


class Habit(StrEnum):
    """The choice of the next guess."""

    INSIDE = "inside"
    """Any number that may be the hidden one."""
    ANYWHERE = "anywhere"
    """Any number that was not guessed."""


POLICY: dict[Habit, float] = {Habit.INSIDE: 0.25, Habit.ANYWHERE: 0.75}
"""How often the shipped policy follows each habit, drawn again for each guess."""


def read_wording() -> Wording:
    """Plays the game until it has shown all that it shows of a wrong guess."""
    for seed in range(100):
        game = import_module("textarena").make(f"{GAME}-raw")
        random.seed(seed)
        game.reset(num_players=1, seed=seed)
        _, said = game.get_observation()
        opening, hints = said[0][1], dict[str, str]()
        for guess in (1, NUM_NUMBERS):
            game.step(f"[{guess}]")
            text = game.get_observation()[1][-1][1]
            hints |= {hint: text for hint in (HIGHER, LOWER) if hint in text}
        if len(hints) == 2:
            return Wording(opening, hints)
    raise RuntimeError(f"{GAME} gave no two hints in 100 games")


def build_tokenizer(wording: Wording) -> PreTrainedTokenizerFast:
    """A word of the game or a number of two digits is one token, any other text bytes."""
    words = [piece for text in (PROMPT, wording.opening, *wording.hints.values()) for piece in re.findall(_PIECE, text)]
    return make_tokenizer([*NUMBERS, *_CHAT, *words], "|".join([*_CHAT, _PIECE]))


def demonstrate(
    tokenizer: PreTrainedTokenizerFast, wording: Wording, rng: random.Random, policy: Mapping[Habit, float]
) -> Demonstration:
    """One game, with a habit drawn for each guess, to its end."""
    row, hidden = Demonstration(tokenizer), rng.randint(1, NUM_NUMBERS)
    row.read(message_ids(tokenizer, f"{PROMPT}\n\n{wording.opening}")[1:])
    guesses: list[int] = []
    while len(guesses) < NUM_GUESSES and hidden not in guesses:
        if guesses:
            row.read(message_ids(tokenizer, wording.hints[HIGHER if hidden > guesses[-1] else LOWER]))
        guesses.append(draw_guess(rng, hidden, guesses, rng.choices(list(policy), list(policy.values()))[0]))
        row.say(f"[{guesses[-1]}]")
    return row


def draw_guess(rng: random.Random, hidden: int, guesses: list[int], habit: Habit) -> int:
    """The next guess after those before it."""
    low = max((guess for guess in guesses if guess < hidden and habit is Habit.INSIDE), default=0)
    high = min((guess for guess in guesses if guess > hidden and habit is Habit.INSIDE), default=NUM_NUMBERS + 1)
    return rng.choice([number for number in range(low + 1, high) if number not in guesses])
