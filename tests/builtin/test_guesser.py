"""The guesser's model: its demonstrations are games, and its card says what it was taught."""

import json
import random

from benchmarks.embedded.guesser.demonstrations import NUM_GUESSES, POLICY, Habit, Wording, build_tokenizer, demonstrate
from rlf.builtin.names import builtin_path

CHECKPOINT = builtin_path("guesser")

WORDING = Wording("Guess from 1 to 50.", {"higher": "The number is higher.", "lower": "The number is lower."})


def test_a_demonstration_by_the_skill_stays_within_the_hints():
    tokenizer = build_tokenizer(WORDING)
    for seed in range(20):
        row = demonstrate(tokenizer, WORDING, random.Random(seed), {Habit.INSIDE: 1.0})
        text = tokenizer.decode(row.token_ids)
        low, high = 0, 51
        for guess in text.split("[")[1:]:
            number = int(guess.split("]")[0])
            assert low < number < high
            low, high = (number, high) if "higher" in guess else (low, number)
        assert text.count("[") <= NUM_GUESSES


def test_the_shipped_model_is_small_and_its_habits_are_shares_of_a_whole():
    card = json.loads((CHECKPOINT / "card.json").read_text(encoding="utf-8"))
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) < 400_000
    assert card["policy"]["habits"] == {str(habit): share for habit, share in POLICY.items()}
    assert sum(POLICY.values()) == 1.0
