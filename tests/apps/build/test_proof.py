"""What every task must withstand: a task with one fault each is refused for that fault."""

import random
from dataclasses import replace

import pytest

from rlf.apps.build.task import (
    BuildTask,
    CallStep,
    Join,
    ProofBench,
    ProofFailure,
    Scenario,
    check_twin,
    policy_scores,
    prove_task,
)
from rlf.core.leaks import SearchedText
from rlf.rewards.values import Solved

RIVERS = {"Kaldun": "Bilnar", "Semtel": "Pekvor"}
LENGTHS = {"Bilnar": 1738, "Pekvor": 2204}


def invoke(tool, arguments):
    return {"river": RIVERS, "length": LENGTHS}[tool][arguments["name"]]


def chain(subject, number=0):
    river = RIVERS[subject]
    return (
        CallStep(f"the river of {subject}", "river", {"name": subject}, river),
        CallStep(f"the length of {river}", "length", {"name": {"$step": number}}, LENGTHS[river], (number,)),
    )


TASK = BuildTask(
    id="t",
    split="train",
    world="w",
    scenario=Scenario.PARALLEL_MULTI,
    question="How much longer is the river of Semtel than that of Kaldun?",
    answer="466",
    join=Join.DIFFERENCE,
    steps=(*chain("Kaldun"), *chain("Semtel", 2)),
    tools=("river", "length"),
    names=("Kaldun", "Semtel"),
)


def proven(task, documents=""):
    return prove_task(task, ProofBench(invoke), SearchedText(documents))


def test_a_sound_task_is_proven_by_as_many_calls_as_it_has_sub_questions():
    assert proven(TASK) == Solved(solved=4, calls=4, total=4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"answer": "467"}, "gold: the values found do not make the answer"),
        ({"steps": (replace(TASK.steps[0], gold="Pekvor"), *TASK.steps[1:])}, "gold: a call does not find its value"),
        ({"question": TASK.question + " It is not Bilnar."}, "leak: the question names a value"),
        ({"question": TASK.question + " Is it 466?"}, "leak: the question names a value"),
    ],
)
def test_a_task_with_a_fault_is_refused_for_it(change, reason):
    with pytest.raises(ProofFailure, match=reason):
        proven(replace(TASK, **change))


def test_a_value_in_a_tools_document_is_a_leak_and_one_within_another_word_is_none():
    with pytest.raises(ProofFailure, match="leak: a tool's document names a value"):
        proven(TASK, "such as 1738")
    proven(replace(TASK, question=TASK.question + " 14660 Bilnarsson 17380"))


def test_a_gold_that_the_call_itself_names_is_not_found():
    echo = CallStep("the name of Kaldun", "river", {"name": "Kaldun", "hint": "Bilnar"}, "Bilnar")
    with pytest.raises(ProofFailure, match="gold: its calls do not solve all sub-questions"):
        proven(replace(TASK, steps=(echo,), join=Join.VALUE, answer="Bilnar"))


def test_the_same_answer_in_the_twin_is_a_fault():
    check_twin(TASK, "7")
    with pytest.raises(ProofFailure, match="swap: the answer is the same"):
        check_twin(TASK, "466")


def test_a_call_that_stands_twice_is_a_fault():
    twice = replace(TASK, steps=(TASK.steps[0], TASK.steps[0]), join=Join.LIST, answer="Bilnar, Bilnar")
    with pytest.raises(ProofFailure, match="minimal: a gold call can be left out"):
        proven(twice)


def test_policies_that_solve_nothing_stay_low():
    bench = ProofBench(invoke)
    found = policy_scores(TASK, proven(TASK), lambda tool, name: [bench.call(tool, {"name": name})], random.Random(0))
    gold, null, _, spam = found
    assert (gold.f1, null.f1) == (1.0, 0.0)
    assert spam == Solved(solved=2, calls=4, total=4)  # no length: the question names no river
    assert spam.f1 == 2 * 2 / (4 + 4)
