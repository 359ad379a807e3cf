"""Offline builds: shapes, dials, splits, noise, the same bytes from the same seed."""

import json
import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.embedded.reader.tokenizer import build_tokenizer
from rlf.apps.build.kind import Noise, shares_of
from rlf.apps.build.pack import NUMBER, PACKS, load_pack, pack_names
from rlf.apps.build.task import Join, Scenario
from rlf.apps.build.worlds import Chain, Paths, derange, make_world
from rlf.core import RlfError
from tests.apps.build.worlds import parts, settings

ENGLISH = load_pack("english")
NAMES = [f"Name{number}" for number in range(200)]


@given(st.lists(st.integers(0, 99), min_size=2, max_size=40, unique=True), st.integers(0, 9))
def test_a_derangement_keeps_the_values_and_leaves_none_at_its_place(values, seed):
    deranged = derange(values, random.Random(seed))
    assert sorted(deranged) == sorted(values)
    assert all(one != other for one, other in zip(values, deranged, strict=True))


@given(st.integers(0, 500), st.lists(st.floats(0.01, 1), min_size=1, max_size=5))
def test_shares_add_up_and_are_within_one_of_what_is_asked(total, weights):
    counts = shares_of(total, {str(place): weight for place, weight in enumerate(weights)})
    assert sum(counts.values()) == total
    exact = [total * weight / sum(weights) for weight in weights]
    assert all(abs(count - value) < 1 + 1e-6 for count, value in zip(counts.values(), exact, strict=True))


def test_no_value_of_a_world_is_the_twins_and_none_is_frequent():
    world = make_world("w", ENGLISH, NAMES, random.Random(0), with_former=True)
    assert all(world.swapped[key] != value != world.former.get(key) for key, value in world.facts.items())
    mutable = {relation.name for relation in ENGLISH.relations if relation.words.mutable}
    assert {relation for relation, _ in world.former} == mutable != {relation.name for relation in ENGLISH.relations}
    assert all(subject != value for (_, subject), value in world.facts.items())
    assert max(world.guesses.values()) <= 1 / len(world.names_by_kind["town"]) + 1e-9


@pytest.mark.parametrize("name", pack_names())
def test_a_pack_leads_on_from_every_relation_to_a_thing_and_names_kinds_that_it_has(name):
    pack = load_pack(name)
    assert {relation.value for relation in pack.relations} <= {*pack.kinds, NUMBER}
    assert Paths(pack).longest(4) >= 3
    assert all("{x}" in phrase for relation in pack.relations for phrase in relation.words.phrases)


def test_english_names_values_as_nouns_and_asks_as_a_person_would():
    for relation in ENGLISH.relations:
        words = relation.words
        assert all(phrase.startswith("the ") for phrase in words.phrases)
        assert any(phrase.endswith("{x}") for phrase in words.phrases)
        assert words.questions and all(text.endswith("?") and "{x}" in text for text in words.questions)
    questions = [task.question for part in parts(settings(count=400, build={"entities": 40})) for task in part.tasks]
    stiff = re.compile(r"\b(What|Name|are|is|of|up|out) (how|what|who|which|on how)\b|What is the person|  ")
    assert not [question for question in questions if stiff.search(question)]
    people = [relation.words.phrases for relation in ENGLISH.relations if relation.value == "person"]
    heads = tuple(phrase.split(" {x}")[0] for phrases in people for phrase in phrases)
    assert not [q for q in questions if q.startswith(tuple(f"What is {head} " for head in heads))]


def test_a_long_subject_stands_at_the_end_of_its_phrase():
    rng = random.Random(0)
    relations = {relation.name: relation for relation in ENGLISH.relations}
    chain = Chain("Kaldun", (relations["river"], relations["mouth_town"], relations["mayor"], relations["salary"]))
    for _ in range(40):
        assert re.search(r"Kaldun( lies)?$", chain.phrase(rng))


def test_each_shape_has_the_calls_that_it_is_named_for():
    tasks = [task for part in parts(settings(hops=(2, 3), parallel=(2, 2))) for task in part.tasks]
    counts = Counter(task.scenario for task in tasks)
    assert counts.total() == 48 and min(counts[each] for each in Scenario) >= 11
    for task in tasks:
        chained = [step for step in task.steps if step.needs]
        match task.scenario:
            case Scenario.SINGLE:
                assert len(task.steps) == 1
            case Scenario.PARALLEL_SINGLE:
                assert len(task.steps) == 2 == len(task.ends) and not chained
            case Scenario.MULTI:
                assert len(task.steps) in (2, 3) and len(chained) == len(task.steps) - 1
            case Scenario.PARALLEL_MULTI:
                assert len(task.ends) == 2 == len(task.steps) - len(chained)


def test_every_shape_asks_for_values_and_never_for_one_of_few_choices():
    tasks = [task for part in parts(settings(count=400, build={"entities": 30})) for task in part.tasks]
    assert {task.join for task in tasks} == set(Join)
    for task in tasks:
        assert not any(re.search(rf"\b{re.escape(str(step.gold))}\b", task.question) for step in task.steps)


def test_parts_of_the_split_share_neither_names_nor_tools():
    by_split = {}
    for part in parts(settings()):
        for task in part.tasks:
            things = {*task.names, *(step.gold for step in task.steps if isinstance(step.gold, str))}
            by_split.setdefault(task.split, set()).update(things, task.tools)
    assert set(by_split) == {"train", "validation", "heldout"}
    assert sum(map(len, by_split.values())) == len(set.union(*by_split.values()))


def test_tools_are_one_set_where_the_split_is_by_world_alone():
    built = parts(settings(split={"by": ["world"]}))
    assert len({json.dumps([{**tool, "tests": 0} for tool in part.tools]) for part in built}) == 1


def test_functions_of_one_signature_are_integrated():
    alone = parts(settings(build={"integrate": 0}))[0].tools
    together = parts(settings(build={"integrate": 1}))[0].tools
    assert len(alone) == len(ENGLISH.relations)
    assert len(together) == len(ENGLISH.families)


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("dial", ["function", "parameters", "types", "toolset"])
def test_each_dial_builds_proven_tasks_at_each_level(dial, level):
    part = parts(settings(count=12, complexity={dial: level}))[0]
    assert all(figures["gold/f1"] == figures["tasks"] for figures in part.figures.values())
    if dial == "toolset":
        assert all(len(task.tools) >= 6 + (0, 2, 4, 8)[level] for task in part.tasks)
    schema = part.tools[0]["inputSchema"]
    if dial == "parameters":
        assert len(schema["properties"]) == len(schema["required"]) + (0, 1, 3, 3)[level]
    if dial == "types":
        assert schema["properties"][schema["required"][0]]["type"] == ("string", "string", "object", "object")[level]


def test_distractors_are_of_the_families_of_needed_tools_first():
    (part, *_) = parts(settings(count=12, complexity={"toolset": 1}, build={"integrate": 0}))
    family_by_name = {tool["name"]: place for tool, place in zip(part.tools, _families(), strict=True)}
    for task in part.tasks:
        needed = {step.tool for step in task.steps}
        families = {family_by_name[name] for name in needed}
        near = {name for name, family in family_by_name.items() if family in families} - needed
        assert len(near & set(task.tools)) == min(2, len(near))


def _families():
    return [relation.family for relation in ENGLISH.relations]


@pytest.mark.parametrize("noise", Noise)
def test_every_level_of_noise_leaves_tasks_that_gold_calls_solve(noise):
    for part in parts(settings(count=12, noise=noise, complexity={"parameters": 3, "types": 3, "function": 3})):
        names = [tool["name"] for tool in part.tools]
        assert len(set(names)) == len(names)
        assert all(figures["gold/f1"] == figures["tasks"] for figures in part.figures.values())


def test_noise_renames_tools_and_leaves_their_documents():
    clean, slight = (parts(settings(count=12, noise=noise))[0].tools for noise in ("clean", "slight"))
    assert [tool["description"] for tool in clean] == [tool["description"] for tool in slight]
    assert all(one["name"] != other["name"] for one, other in zip(clean, slight, strict=True))


def test_a_world_that_is_too_small_and_chains_that_are_too_long_are_faults():
    with pytest.raises(RlfError, match=r"need 85680 names for train; there are 17920"):
        parts(settings(build={"worlds": 300, "entities": 60}))
    with pytest.raises(RlfError, match="tasks of the shape single in a row were dropped"):
        parts(settings(count=4000, build={"entities": 10}, scenarios={"single": 1.0}))


def test_the_dialect_of_the_built_in_model_names_tools_by_its_words():
    (part, *_) = parts(settings(build={"pack": "embedded"}, hops=(2, 3)))
    tokenizer = build_tokenizer()
    documents = [
        f"{tool['description'].removeprefix('the ')}: {tool['name']}({', '.join(tool['inputSchema']['properties'])})"
        for tool in part.tools
    ]
    texts = [*documents, *(task.question for task in part.tasks)]
    pieces = {tokenizer.decode([token]) for text in texts for token in tokenizer.encode(text)}
    assert {piece for piece in pieces if len(piece) == 1} <= {"_", "(", ")", "?", "-", " "}, (
        "no word falls into letters"
    )


def test_the_hash_of_a_build_covers_its_language_pack(tmp_path):
    hashes = []
    for word in ("Tell", "Say"):
        text = (PACKS / "english.yaml").read_text(encoding="utf-8").replace("Name {p}.", f"{word} {{p}}.")
        (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
        load_pack.cache_clear()
        hashes.append(settings(build={"pack": str(tmp_path / "own.yaml")}).sha256)
    assert hashes[0] != hashes[1]
