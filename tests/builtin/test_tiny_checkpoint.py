"""The shipped checkpoint and the figures on its card."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.embedded.tiny.evaluate import play, read_questions, success_by_kind
from benchmarks.embedded.tiny.layout import prompt_ids
from benchmarks.embedded.tiny.tokenizer import build_tokenizer
from rlf.builtin.encyclopedia import calculator, search, search_disabled
from rlf.builtin.names import builtin_path

CHECKPOINT = builtin_path("tiny")

CARD = json.loads((CHECKPOINT / "card.json").read_text())


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(CHECKPOINT)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(CHECKPOINT)


def test_it_loads_as_a_float32_qwen3_of_the_size_on_the_card(model):
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.dtype == torch.float32
    assert sum(parameter.numel() for parameter in model.parameters()) == CARD["model"]["parameters"]
    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) < 4_000_000


def test_its_tokenizer_is_the_one_that_the_code_builds(model, tokenizer):
    built = build_tokenizer()
    assert tokenizer.get_vocab() == built.get_vocab()
    assert tokenizer.chat_template == built.chat_template
    assert (tokenizer.eos_token, tokenizer.pad_token) == (built.eos_token, built.pad_token)
    assert len(tokenizer) == model.config.vocab_size
    for question in read_questions("encyclopedia/validation")[:50]:
        assert tokenizer.encode(question.text) == built.encode(question.text)


def test_generation_stops_at_the_end_of_the_turn_and_samples_at_temperature_one(model, tokenizer):
    config = model.generation_config
    assert (config.eos_token_id, config.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert (config.do_sample, config.temperature, config.top_k) == (True, 1.0, 0)
    question = read_questions("encyclopedia/validation")[0]
    tokens_BT = torch.tensor([prompt_ids(tokenizer, ["search", "calculator"], question.text)])
    generated_BT = model.generate(tokens_BT, attention_mask=torch.ones_like(tokens_BT), max_new_tokens=40)
    assert generated_BT[0, -1] == tokenizer.eos_token_id


def test_its_skills_met_their_criterion():
    greedy = CARD["skills"]["validation"]["greedy"]
    assert min(greedy.values()) >= CARD["skills"]["plan"]["criterion"]


@pytest.mark.parametrize("split", ["validation", "heldout"])
def test_the_base_policy_is_poor_but_not_hopeless(split):
    figures = CARD["base"][split]
    assert figures["questions"] == len(read_questions(f"encyclopedia/{split}"))
    assert 0.15 <= figures["sampled"]["all"] <= 0.30
    assert min(figures["sampled"].values()) > 0.05
    assert figures["greedy"]["all"] < 0.6


def test_controls_score_next_to_nothing():
    assert CARD["controls"].keys() == {"search_disabled", "search_shuffled"}
    assert max(CARD["controls"].values()) < 0.02


def test_the_sampled_figure_of_the_card_is_found_again(model, tokenizer):
    tools = {"search": search, "calculator": calculator}
    episodes = play(model, tokenizer, tools, read_questions("encyclopedia/validation"), sample_seed=7)
    # 512 episodes at 0.25: two standard errors of the difference of two such figures are 0.054.
    assert success_by_kind(episodes)["all"] == pytest.approx(CARD["base"]["validation"]["sampled"]["all"], abs=0.08)


def test_without_the_tool_nothing_is_answered(model, tokenizer):
    questions = read_questions("encyclopedia/validation")[:128]
    episodes = play(model, tokenizer, {"search": search_disabled}, questions, sample_seed=7)
    assert success_by_kind(episodes)["all"] < 0.03
