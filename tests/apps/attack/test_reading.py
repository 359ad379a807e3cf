"""What the attack reads in a reward: constants of its code, patterns that it uses, and texts that these match."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from pathlib import Path

import pytest

from rlf.apps.attack.reading import (
    HOLE,
    LineWatch,
    RewardReading,
    all_texts,
    is_pattern,
    matching,
    read_terms,
    templates_of,
)
from rlf.apps.attack.search import read_forms
from rlf.rewards.calling import OwnFunction
from rlf.rewards.facts import Example
from rlf.rewards.term import Term

PATTERNS = (
    r"<think>.*?</think>\s*<answer>.*?</answer>",
    r"^<reasoning>\n.*?\n</reasoning>$",
    r"(?m)^\s*\d+\.\s+\S",
    r"^\|.+\|\n\|[-| :]+\|\n(\|.+\|\n?){2,}",
    r"\\boxed\{[^}]+\}",
    r"[Cc]onfidence:\s*(\d+)%",
    r"\b(?:therefore|because)\b",
    r"<(\w+)>[^<]*</\1>",
    r"\b(19|20)\d{2}-(0[1-9]|1[0-2])-\d{2}\b",
    r"(?P<sign>[-+])?\d+(?(sign)x|y)",
    r"[^\W\d_]{3,}",
    r"a{2,4}(?=b)b?",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_text_made_of_a_pattern_is_matched_by_it(pattern: str) -> None:
    texts = [text for variant in range(6) if (text := matching(pattern, variant)) is not None]
    assert is_pattern(pattern) and texts, pattern
    assert all(re.search(pattern, text) for text in texts)


def test_the_places_of_a_pattern_that_an_answer_may_stand_in_are_left_open() -> None:
    assert f"#### {HOLE}" in {form.strip() for form in templates_of(r"#### (-?[\d.,]+)\s*$")}
    assert any(re.fullmatch(rf"<a>.*</a>\s*<b>{HOLE}</b>", form) for form in templates_of(r"<a>.+?</a>\s*<b>(.*?)</b>"))
    assert list(templates_of("therefore|thus")) == []
    assert f"{HOLE} [1]" in templates_of(r"(\d{4})\s*\[(\d+)\]"), "as long as the pattern itself wants it"


@pytest.mark.parametrize("text", ["plain words", "Is it so?", "a(", "x" * 3])
def test_prose_and_what_does_not_compile_is_no_pattern_with_places(text: str) -> None:
    assert list(templates_of(text)) == []


SOURCE = '''
import re
from functools import partial

LIMIT = 7
WORDS = ["alpha", "beta"]
SHAPE = re.compile(r"<note>(.*)</note>")
TAGS = ("plan", "proof")


def helper(text):
    """Words of a docstring are no constants."""
    return "gamma" in text and SHAPE.search(text)


def own(trajectory, *, mark="delta"):
    for tag in TAGS:
        if re.search(rf"\\[{tag}\\](.*?)\\[/{tag}\\]", trajectory):
            return 1.0
    return float(len(trajectory) > LIMIT and any(word in trajectory for word in WORDS) and helper(trajectory))


def against(trajectory, gold):
    return float(bool(re.search(rf"\\b{gold}\\b", trajectory)))


def computes(trajectory):
    expected = 7
    return float(eval(trajectory, {}, locals()) == expected)


class Caller:
    def __init__(self, word):
        self.word = word

    def __call__(self, trajectory):
        return float(self.word in trajectory)


def make(word):
    def inner(trajectory):
        return float(word in trajectory)

    return inner


called, closed, bound = Caller("epsilon"), make("zeta"), partial(lambda word, text: word in text, "eta")
'''


def term(folder: Path, name: str) -> Term:
    (folder / "own.py").write_text(SOURCE)
    return Term.model_validate(
        {"kind": "python", "name": "own", "callable": f"own.py:{name}"}, context={"folder": folder}
    )


def read(folder: Path, name: str) -> RewardReading:
    return read_terms((term(folder, name),))


def test_constants_are_read_in_functions_modules_defaults_closures_and_objects(tmp_path: Path) -> None:
    found = read(tmp_path, "own")
    assert {"alpha", "beta", "gamma", "delta", "plan", "proof"} <= found.words.keys()
    assert 7 in found.numbers and "<note>(.*)</note>" in found.patterns
    assert not any("docstring" in word for word in found.words)
    assert "own.py" in found.words["alpha"]
    for name, word in (("called", "epsilon"), ("closed", "zeta"), ("bound", "eta")):
        assert word in read(tmp_path, name).words, name


def test_names_are_read_where_a_function_evaluates_what_was_written(tmp_path: Path) -> None:
    assert "expected" in read(tmp_path, "computes").words
    assert "tag" not in read(tmp_path, "own").words


def test_answers_of_a_terms_own_tests_are_forms_of_right_ones(tmp_path: Path) -> None:
    tests = [{"gold": "Lyon", "answer": "Lyon [2]", "expect": 1}, {"gold": "Lyon", "answer": "Lyon (2)", "expect": 0}]
    found = read_terms((term(tmp_path, "own").model_copy(update={"tests": tuple(map(Example.model_validate, tests))}),))
    assert found.forms == [f"{HOLE} [2]"] and f"{HOLE} [2]" in read_forms(found)


def test_keys_of_terms_that_are_no_code_are_read_too() -> None:
    rules = (
        {"kind": "rule", "name": "one", "rule": "regex", "pattern": r"Step \d+"},
        {"kind": "rule", "name": "two", "rule": "expression", "formula": "1 if calls > 3 else 0"},
        {"kind": "rule", "name": "three", "rule": "json_schema", "schema": {"type": "object", "required": ["town"]}},
    )
    found = read_terms(tuple(Term.model_validate(each) for each in rules))
    assert r"Step \d+" in found.patterns and 3 in found.numbers and "town" in found.names


def test_a_pattern_that_is_put_together_is_seen_and_one_that_holds_the_gold_is_not(tmp_path: Path) -> None:
    watch = LineWatch((term(tmp_path, "own"), term(tmp_path, "against")))
    name = f"{tmp_path}/own.py"
    own, against = OwnFunction(f"{name}:own", 9), OwnFunction(f"{name}:against", 9)

    async def call() -> None:
        for watch.gold in ("Lyon", "Bonn"):
            await own("a text")
            await against("a text", watch.gold)

    with watch.tracing():
        asyncio.run(call())
    assert r"\[plan\](.*?)\[/plan\]" in watch.patterns
    assert not any("Lyon" in pattern for pattern in watch.patterns)
    assert watch.arcs and {Path(file).name for file, _, _ in watch.arcs} == {"own.py"}


def test_forms_of_an_answer_come_from_patterns_tags_labels_and_keys() -> None:
    reading = RewardReading()
    reading.add([r"#### (\d+)", "Reason:", "Answer:", "<final>", "result"], "here")
    forms = {form.strip() for form in read_forms(reading)}
    assert {f"#### {HOLE}", f"Answer: {HOLE}", f"<final>{HOLE}</final>", f'{{"result": "{HOLE}"}}'} <= forms
    assert any(re.fullmatch(rf"Reason: .+\nAnswer: {HOLE}", form) for form in forms)


def test_an_installed_package_adds_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "own_texts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-texts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlf.apps.attack.texts]\nours = own_texts:TEXTS\n")
    (tmp_path / "own_texts.py").write_text('TEXTS = ["abracadabra"]\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    try:
        assert "abracadabra" in all_texts() and len(all_texts()) > 100
    finally:
        sys.modules.pop("own_texts", None)
