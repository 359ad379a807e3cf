"""Demonstrations, the training stages and the evaluation loop, on a scale of seconds."""

import random

import pytest
import torch

from benchmarks.embedded.encyclopedia.questions import Kind
from benchmarks.embedded.tiny.demonstrations import (
    GIVE_UP_ANSWER,
    Careless,
    careless_demonstration,
    clean_demonstration,
    copy_drill,
    disabled_demonstration,
    sample_scene,
)
from benchmarks.embedded.tiny.evaluate import EvaluationQuestion, play, success_by_kind
from benchmarks.embedded.tiny.layout import ToolCallTextError, parse_calls
from benchmarks.embedded.tiny.model import create_model
from benchmarks.embedded.tiny.pretrain import PolicyPlan, SkillsPlan, make_stages, teach_skills, train_habits
from benchmarks.embedded.tiny.tokenizer import build_tokenizer

TOKENIZER = build_tokenizer()


@pytest.fixture
def scene():
    return sample_scene("scene")


def turns_of(row):
    """The texts that the model is to produce, turn by turn."""
    runs, current = [], []
    for token_id, action in zip([*row.token_ids, 0], [*row.is_action, False], strict=True):
        if action:
            current.append(token_id)
        elif current:
            runs.append(TOKENIZER.decode(current))
            current = []
    return runs


@pytest.mark.parametrize("kind", list(Kind))
def test_a_clean_demonstration_makes_the_planned_calls_then_answers(scene, kind):
    question = scene.question(kind)
    turns = turns_of(clean_demonstration(TOKENIZER, scene, question))
    assert all(turn.endswith("<|im_end|>") for turn in turns)
    assert turns[-1] == f"{question.answer}<|im_end|>"
    planned = [[("search", {"query": lookup.query}) for lookup in lookups] for lookups in question.lookups_by_turn]
    if question.expression is not None:
        planned.append([("calculator", {"expression": question.expression})])
    assert [parse_calls(turn) for turn in turns[:-1]] == planned


def test_clean_demonstrations_see_one_and_two_passages_and_both_systems(scene):
    rows = [clean_demonstration(TOKENIZER, scene, scene.question(Kind.SINGLE)) for _ in range(80)]
    texts = [TOKENIZER.decode(row.token_ids) for row in rows]
    results = [text.split("<tool_response>\n")[1].split("\n</tool_response>")[0].split("\n") for text in texts]
    assert {len(result) for result in results} == {1, 2}
    assert {"Tools: search<" in text for text in texts} == {True, False}


def test_a_calculation_always_declares_the_calculator_and_reads_its_result(scene):
    for _ in range(20):
        question = scene.question(Kind.CALCULATION)
        text = TOKENIZER.decode(clean_demonstration(TOKENIZER, scene, question).token_ids)
        assert "Tools: search, calculator<" in text
        assert f"<tool_response>\n{question.answer}\n</tool_response>" in text


@pytest.mark.parametrize("kind", [Kind.TWO_HOP, Kind.CALCULATION])
@pytest.mark.parametrize("fault", list(Careless))
def test_a_careless_demonstration_misses_the_answer(scene, fault, kind):
    for _ in range(10):
        question = scene.question(kind)
        turns = turns_of(careless_demonstration(TOKENIZER, scene, question, fault))
        assert turns[-1] != f"{question.answer}<|im_end|>"


def test_a_malformed_call_cannot_be_read(scene):
    row = careless_demonstration(TOKENIZER, scene, scene.question(Kind.SINGLE), Careless.MALFORMED)
    with pytest.raises(ToolCallTextError):
        parse_calls(turns_of(row)[0])


def test_a_search_that_finds_nothing_is_followed_by_giving_up(scene):
    turns = turns_of(disabled_demonstration(TOKENIZER, scene, scene.question(Kind.PARALLEL)))
    assert turns[-1] == f"{GIVE_UP_ANSWER}<|im_end|>"


def test_a_copy_drill_says_the_same_twice():
    row = copy_drill(TOKENIZER, random.Random(0), num_items=5)
    assert row.token_ids[:5] == row.token_ids[6:]
    assert row.is_action == [False] * 5 + [True] * 6


def test_skills_that_miss_the_criterion_are_refused():
    plan = SkillsPlan(warmup_steps=1, constant_steps=1, decay_steps=1)
    skills, _ = make_stages(TOKENIZER, 0, plan, PolicyPlan())
    with pytest.raises(RuntimeError, match="Try another seed"):
        teach_skills(create_model(TOKENIZER, 0), TOKENIZER, skills, plan.criterion, lambda: {"all": 0.0})


def test_both_stages_are_reproducible_step_for_step():
    weights = []
    for _ in range(2):
        model = create_model(TOKENIZER, 0)
        plan = SkillsPlan(warmup_steps=1, constant_steps=1, decay_steps=1)
        skills, habits = make_stages(TOKENIZER, 0, plan, PolicyPlan(steps=1, batch_size=4))
        teach_skills(model, TOKENIZER, skills, plan.criterion, lambda: {"all": 1.0})
        train_habits(model, TOKENIZER, habits)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.equal(*weights)


def test_evaluation_counts_exact_answers_by_kind():
    question = EvaluationQuestion("Where was Bakbir born?", "Zelmas", "single")
    episodes = play(create_model(TOKENIZER, 0), TOKENIZER, {"search": str}, [question] * 3, sample_seed=0)
    for episode, answer in zip(episodes, ["Zelmas", "zelmas", None], strict=True):
        episode.answer = answer
    assert success_by_kind(episodes) == {"all": pytest.approx(1 / 3), "single": pytest.approx(1 / 3)}
