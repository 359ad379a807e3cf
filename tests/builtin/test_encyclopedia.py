"""The fictional world, its questions, its search and the shipped data."""

import hashlib
import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import pytest

from benchmarks.embedded.encyclopedia.build import build, generate_split_world
from benchmarks.embedded.encyclopedia.questions import Kind, Lookup, sample_question
from benchmarks.embedded.encyclopedia.world import RELATIONS, WorldSize, generate_world
from rlf.builtin.encyclopedia import calculator, search, search_disabled, search_shuffled
from rlf.builtin.encyclopedia.names import ENDS, STARTS, NameSplit, split_names
from rlf.builtin.encyclopedia.search import NOTHING_FOUND, SearchIndex, _built_once, load_corpus

DATA = files("rlf.builtin.encyclopedia").joinpath("data")
SMALL = WorldSize(persons=12, towns=8, rivers=8, companies=6, countries=6)


def read_rows(name):
    return [json.loads(line) for line in DATA.joinpath(name).read_text(encoding="utf-8").splitlines()]


def names_in(text):
    """Every START + END that stands in the text as a word."""
    words = "".join(character if character.isalnum() else " " for character in text).split()
    return {word for word in words if word[:3] in STARTS and word[3:] in ENDS}


def test_a_world_depends_on_its_seed_alone():
    assert generate_world(5, NameSplit.TRAIN, SMALL) == generate_world(5, NameSplit.TRAIN, SMALL)
    assert generate_world(5, NameSplit.TRAIN, SMALL) != generate_world(6, NameSplit.TRAIN, SMALL)


def test_splits_share_no_name_and_cover_every_pair_of_syllables():
    names = [set(split_names(split)) for split in NameSplit]
    assert sum(map(len, names)) == len(set().union(*names)) == len(STARTS) * len(ENDS)


def test_shipped_splits_mention_disjoint_names():
    names_by_split = {
        split: set().union(
            *(names_in(f"{row['question']} {row['answer']}") for row in read_rows(f"{split.value}.jsonl"))
        )
        for split in NameSplit
    }
    for split, names in names_by_split.items():
        assert len(names) > 300
        assert names <= set(split_names(split))


def test_the_data_files_come_out_bit_for_bit_again(tmp_path):
    build(tmp_path)
    for name in ("corpus.jsonl", "train.jsonl", "validation.jsonl", "heldout.jsonl"):
        fresh = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        assert fresh == hashlib.sha256(DATA.joinpath(name).read_bytes()).hexdigest(), name


def test_question_files_hold_the_promised_numbers_of_distinct_questions():
    for name, minimum in (("train", 4000), ("validation", 512), ("heldout", 512)):
        rows = read_rows(f"{name}.jsonl")
        assert len(rows) >= minimum
        assert len({row["question"] for row in rows}) == len({row["id"] for row in rows}) == len(rows)
        assert all(set(row) == {"id", "question", "answer", "kind"} for row in rows)


@pytest.mark.parametrize("split", list(NameSplit))
def test_kinds_come_in_the_ratio_four_to_three_to_two_to_one(split):
    counts = Counter(row["kind"] for row in read_rows(f"{split.value}.jsonl"))
    total = sum(counts.values())
    shares = {Kind.SINGLE: 0.4, Kind.TWO_HOP: 0.3, Kind.PARALLEL: 0.2, Kind.CALCULATION: 0.1}
    assert counts.keys() == shares.keys()
    for kind, share in shares.items():
        assert counts[kind.value] / total == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("split", list(NameSplit))
def test_no_constant_answer_scores_three_percent_of_any_kind(split):
    rows = read_rows(f"{split.value}.jsonl")
    for kind in Kind:
        answers = [row["answer"] for row in rows if row["kind"] == kind.value]
        assert Counter(answers).most_common(1)[0][1] / len(answers) < 0.06
    assert Counter(row["answer"] for row in rows).most_common(1)[0][1] / len(rows) < 0.03


@pytest.mark.parametrize("split", list(NameSplit))
def test_search_puts_the_stated_fact_first_for_every_fact_of_every_relation(split):
    world = generate_split_world(split)
    assert {relation for relation, _ in world.fact_by_key} == set(RELATIONS)
    for (relation, subject), fact in world.fact_by_key.items():
        assert search(Lookup(relation, subject).query).split("\n")[0] == fact.passage


def test_search_also_finds_the_fact_from_the_question_itself():
    world, rng = generate_split_world(NameSplit.VALIDATION), random.Random(0)
    questions = [sample_question(rng, world, Kind.SINGLE) for _ in range(200)]
    found = [question.answer in search(question.text) for question in questions]
    assert sum(found) / len(found) > 0.8


def test_the_planned_look_ups_lead_to_the_answer():
    world, rng = generate_world(1, NameSplit.TRAIN, SMALL), random.Random(0)
    for kind in [*Kind] * 50:
        question = sample_question(rng, world, kind)
        values = [world.fact_by_key[lookup.relation, lookup.subject].value for lookup in question.lookups_by_turn[-1]]
        if question.expression is None:
            assert " and ".join(values) == question.answer
        else:
            left, _, right = question.expression.split(" ")
            assert [left, right] == values
            assert calculator(question.expression) == question.answer
        for lookup in question.lookups_by_turn[0]:
            assert lookup.subject in question.text


def test_only_calculations_have_an_expression_and_its_result_is_positive():
    world, rng = generate_world(1, NameSplit.TRAIN, SMALL), random.Random(0)
    for kind in [*Kind] * 50:
        question = sample_question(rng, world, kind)
        assert (question.expression is not None) == (kind is Kind.CALCULATION)
        assert kind is not Kind.CALCULATION or int(question.answer) > 0


def test_search_returns_two_passages_and_says_when_there_is_none():
    assert search("capital").count("\n") == 1
    assert search("xyzzy") == search("") == search("?!") == NOTHING_FOUND


def test_bm25_weight_follows_the_formula():
    # N=2, n_t=1: idf = ln(1 + 1.5/1.5) = ln 2; "b" is in the second text alone.
    index = SearchIndex(["a a", "a b"])
    assert index.top("b", k=2) == [1]
    # tf=1, |d| = mean: weight = ln 2 * 1 * 2.2 / (1 + 1.2) = ln 2
    positions, weights = index._weights_by_word["b"]
    assert positions.tolist() == [1]
    assert weights.tolist() == pytest.approx([0.6931471805599453])


def test_a_long_query_is_answered_too():
    assert search("capital " * 100_000) != NOTHING_FOUND


def test_disabled_search_finds_nothing():
    assert search_disabled(read_rows("train.jsonl")[0]["question"]) == NOTHING_FOUND


def test_shuffled_search_states_a_wrong_value_for_every_fact():
    corpus = load_corpus()
    for passage in corpus[::7]:
        true, false = search(passage.text), search_shuffled(passage.text)
        assert true != false
        assert passage.text in true.split("\n")
        assert passage.text not in false.split("\n")
        assert len(true.split("\n")) == len(false.split("\n"))


def test_shuffled_search_is_the_same_every_time():
    query = read_rows("train.jsonl")[3]["question"]
    assert search_shuffled(query) == search_shuffled(query)


def test_first_calls_on_several_threads_build_a_value_once():
    built, again = [], threading.Event()

    @_built_once
    def get():
        built.append(True)
        if len(built) > 1:
            again.set()
        again.wait(0.1)
        return object()

    with ThreadPoolExecutor(4) as threads:
        values = list(threads.map(lambda _: get(), range(4)))
    assert len(built) == len(set(map(id, values))) == 1
