"""The clerk's model: its card fits its files, its words read back, and it serves in the shop that the spec names."""

import json
import random

from benchmarks.embedded.clerk.demonstrations import POLICY, Habit, demonstrate
from benchmarks.embedded.clerk.tokenizer import SYSTEM, build_tokenizer
from benchmarks.embedded.shop.tasks import TaskKind
from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer

CHECKPOINT = builtin_path("clerk")

CARD = json.loads((CHECKPOINT / "card.json").read_text(encoding="utf-8"))


def test_the_shipped_model_is_small_and_does_badly_before_it_is_trained():
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) < 1_250_000
    assert CARD["base"]["sampled"]["all"] <= 0.4
    assert CARD["skills"]["heldout"]["sampled"]["by_state"] >= 0.95


def test_the_shipped_tokenizer_is_the_one_that_is_built():
    assert load_tokenizer(str(CHECKPOINT)).get_vocab() == build_tokenizer().get_vocab()


def test_habits_are_shares_of_a_whole():
    assert set(POLICY) == set(Habit) and abs(sum(POLICY.values()) - 1.0) < 1e-9


def test_a_right_demonstration_looks_acts_and_ends():
    tokenizer = build_tokenizer()
    row = demonstrate(tokenizer, random.Random(0), Habit.RIGHT, TaskKind.SWAP)
    text = tokenizer.decode(row.token_ids)
    assert text.index(SYSTEM) < text.index('"orders"') < text.index('"buy"') < text.index("bought ")
    assert tokenizer.decode([t for t, acted in zip(row.token_ids, row.is_action, strict=True) if acted]).endswith(
        "done<|im_end|>"
    )
