"""The reader's model: its card fits its files, its documents are those that it is shown, and it uses them badly."""

import json
import random

from benchmarks.embedded.reader.demonstrations import POLICY, SHAPES, Habit, demonstrate, draw_scene
from benchmarks.embedded.reader.tokenizer import build_tokenizer
from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer

CHECKPOINT = builtin_path("reader")

CARD = json.loads((CHECKPOINT / "card.json").read_text(encoding="utf-8"))


def test_the_shipped_model_is_small_reads_new_documents_and_does_badly_before_it_is_trained():
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) < 1_250_000
    assert sum(CARD["base"]["sampled"].values()) / len(SHAPES) <= 0.7
    assert all(CARD["skills"]["unseen_documents"]["greedy"][shape] >= 0.8 for shape in SHAPES)


def test_the_shipped_tokenizer_is_the_one_that_is_built():
    assert load_tokenizer(str(CHECKPOINT)).get_vocab() == build_tokenizer().get_vocab()


def test_habits_are_shares_of_a_whole():
    assert set(POLICY) == set(Habit) and abs(sum(POLICY.values()) - 1.0) < 1e-9


def test_a_right_demonstration_makes_the_gold_calls_in_the_layout_of_the_chat_template():
    tokenizer = build_tokenizer()
    for shape in SHAPES:
        scene = draw_scene(random.Random(shape), shape)
        text = tokenizer.decode(demonstrate(tokenizer, scene, Habit.RIGHT).token_ids)
        made = [json.loads(part.split("\n</tool_call>")[0]) for part in text.split("<tool_call>\n")[1:]]
        calls = {(call["name"], *call["arguments"].values()) for call in made}
        assert calls == set(scene.gold_calls())
        tools = [
            {
                "name": t.name,
                "description": f"the {t.kind}'s {t.relation}",
                "parameters": {"properties": {t.parameter: {}}},
            }
            for t in scene.tools
        ]
        asked = [{"role": "user", "content": scene.question}]
        assert text.startswith(
            tokenizer.apply_chat_template(asked, tools=tools, tokenize=False, add_generation_prompt=True)
        )
