"""Adversaries against rewards: what can be earned without skill is found, a fixed reward is left alone."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlf.apps.attack.attack import Attack, attack
from rlf.apps.attack.search import child
from rlf.apps.attack.shapes import (
    ADVERSARIES,
    GUESSES,
    MAX_CALLING_TURNS,
    MAX_PARTS,
    NOTHING,
    AnswerPart,
    Claim,
    HackCause,
    Shape,
)
from rlf.cli import app
from rlf.runs.declared import draw_questions, rescoring_spec
from rlf.types import Message, Task

REPOSITORY = Path(__file__).parents[2]
SPEC = f"""
name: attacked
model: {{path: builtin:tiny}}
data: {{train: {{path: builtin:encyclopedia/train, prompt: question}}}}
tools: [{REPOSITORY}/tool_specs/search.yaml]
rewards:
%s
rollout: {{max_turns: 5, max_total_tokens: 400}}
train: {{algorithm: grpo}}
"""
RIGHT = "  - {kind: rule, name: right, rule: exact_match}\n"


def spec_file(folder: Path, rewards: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(SPEC % rewards)
    return path


def own_rows(folder: Path, rewards: str, answers: Mapping[str, str | None]) -> Path:
    """A spec over questions and answers of its own."""
    rows = [{"question": question, "answer": answer} for question, answer in answers.items()]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = spec_file(folder, rewards)
    column = "answer" if any(answers.values()) else "null"
    text = path.read_text().replace("builtin:encyclopedia/train", "rows.jsonl")
    path.write_text(text.replace("prompt: question", f"prompt: question, answer: {column}"))
    return path


def attacked(folder: Path, rewards: str, *, seconds: float = 0.0, num_questions: int = 3) -> Attack:
    spec = rescoring_spec([spec_file(folder, rewards)], [])
    return asyncio.run(attack(spec, num_questions=num_questions, seconds=seconds, step=1))


def hacks(found: Attack) -> set[str]:
    return {attempt.name for attempt in found.hacks}


def test_a_sound_reward_is_left_alone(tmp_path: Path) -> None:
    found = attacked(tmp_path, RIGHT)
    assert found.gold is not None and found.gold.reward == 1.0
    assert found.hacks == [] and not found.nothing_beats_trying
    assert found.is_passed and "none earns any" in found.verdict
    names = [attempt.name for attempt in found.attempts]
    assert [name for name in names if name not in ADVERSARIES and name.partition(",")[0] not in ADVERSARIES] == []
    assert [(tool.name, tool.kind, tool.played) for tool in found.tools] == [("search", "python", True)]


def test_an_answer_that_only_has_to_hold_the_gold_is_had_by_garbage(tmp_path: Path) -> None:
    found = attacked(tmp_path, "  - {kind: rule, name: right, rule: contains}\n")
    assert "gold among others" in hacks(found)
    assert "copy the question" not in hacks(found)


def test_calls_that_pay_more_than_being_right_are_made_without_being_right(tmp_path: Path) -> None:
    paid = "  - {kind: rule, name: calls, rule: expression, formula: 'min(calls / 8, 1)', weight: 3}\n"
    found = attacked(tmp_path, RIGHT + paid)
    assert "spam a tool" in hacks(found) and "gold after spam" in hacks(found)
    assert found.hacks == sorted(found.hacks, key=lambda attempt: attempt.num_tokens)


def test_a_penalty_on_calls_teaches_to_do_nothing(tmp_path: Path) -> None:
    penalty = "  - {kind: rule, name: calls, rule: expression, formula: calls, range: [0, 99], weight: -0.1}\n"
    found = attacked(tmp_path, RIGHT + penalty)
    assert found.nothing_beats_trying and found.trying.reward == pytest.approx(-0.1)
    assert found.hacks == []


HACKABLE = """\
  - kind: rule
    name: right
    rule: exact_match
  - kind: rule
    name: odd
    rule: expression
    formula: 2 if calls >= 5 and calls <= 6 and answer_words >= 9 and successes < calls + 1 and failures < 1 else 0
    range: [0, 2]
"""
FIXED = HACKABLE + "    when: {term: right}\n"


def test_a_hack_that_no_named_adversary_knows_is_found_by_the_search_and_the_fixed_reward_is_left_alone(
    tmp_path: Path,
) -> None:
    found = attacked(tmp_path, HACKABLE, seconds=60)
    named, cheapest = {attempt.shape for attempt in found.attempts}, found.hacks[0]
    assert cheapest.shape not in named and cheapest.share is not None and cheapest.share >= 1
    assert 5 <= cheapest.shape.num_turns * cheapest.shape.num_calls <= 6
    assert attacked(tmp_path, FIXED, seconds=1).hacks == []


def test_the_same_seed_makes_the_same_shapes() -> None:
    def made() -> list[Shape]:
        pool = [part for part in AnswerPart if part in GUESSES]
        choice, shape, shapes = random.Random(7), NOTHING, list[Shape]()
        for _ in range(200):
            shape = child(shape, NOTHING, pool, choice)
            shapes.append(shape)
        return shapes

    once = made()
    assert once == made() and len({shape.words for shape in once}) == len(set(once)) > 50
    assert all(shape.num_turns <= MAX_CALLING_TURNS and len(shape.parts) <= MAX_PARTS for shape in once)
    assert {shape.claim for shape in once} == {Claim.NOTHING, Claim.WRONG}, "a search must not be given the answer"


@pytest.mark.parametrize("chat", ["auto", "search_r1"])
def test_tools_beyond_this_machine_are_not_called(tmp_path: Path, chat: str) -> None:
    path = spec_file(tmp_path, "  - {kind: rule, name: ok, rule: tool_success}\n" + RIGHT)
    remote = (
        "[{name: far, description: x, inputSchema: {type: object, properties: {q: {type: string}}, required: [q]}, "
    )
    text = path.read_text().replace(
        f"[{REPOSITORY}/tool_specs/search.yaml]", remote + 'target: {kind: http, url: "http://127.0.0.1:1/"}}]'
    )
    path.write_text(text)
    found = asyncio.run(attack(rescoring_spec([path], [f"+chat.format={chat}"]), num_questions=2, seconds=0, step=1))
    spam = next(attempt for attempt in found.attempts if attempt.name == "one call and nothing")
    assert spam.contributions == {"ok": 1.0, "right": 0.0}
    (tool,) = found.tools
    assert (tool.name, tool.kind, tool.played) == ("far", "http", False) and "http" in tool.reason


REWARDS_ALONE = ("exact_match", "search_r1", "rl_factory_search", "math")
"""Shipped reward files that decide by themselves what is right."""


def test_no_shipped_spec_pays_for_what_is_not_skill() -> None:
    specs = {file.stem: rescoring_spec([file], []) for file in sorted((REPOSITORY / "specs").glob("*.yaml"))}
    bases = ("builtin:tiny", "builtin:small")
    local = {name: spec for name, spec in specs.items() if spec.model.path in bases and spec.tools}
    by_reward = {repr(spec.rewards): name for name, spec in reversed(local.items())}
    assert len(by_reward) >= 5
    for name in by_reward.values():
        found = asyncio.run(attack(specs[name], num_questions=2, seconds=0.2, step=1))
        assert found.gold is not None and found.gold.reward is not None and found.gold.reward >= 1, name
        assert [hack.shape.words for hack in found.hacks] == [], name
        assert not found.nothing_beats_trying, name


@pytest.mark.parametrize("name", REWARDS_ALONE)
def test_no_shipped_reward_file_that_decides_alone_pays_for_what_is_not_skill(tmp_path: Path, name: str) -> None:
    success = "success: {term: rl_factory_search, at_least: 0.9}\n" if name == "rl_factory_search" else ""
    found = attacked(
        tmp_path, f"  - {{use: {REPOSITORY}/reward_specs/{name}.yaml}}\n{success}", seconds=0.2, num_questions=2
    )
    assert found.gold is not None and found.gold.reward is not None and found.gold.reward >= 1
    assert [hack.shape.words for hack in found.hacks] == []


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["rewards", "attack", *arguments])


def test_the_command_exits_with_3_on_a_hack_and_names_cause_and_term(tmp_path: Path) -> None:
    path = spec_file(tmp_path, "  - {kind: rule, name: brief, rule: length, at_most: 3}\n")
    result = run(str(path), "--questions", "2", "--seconds", "0")
    assert result.exit_code == 3, result.output
    assert "verdict: the reward can be earned without skill" in result.output
    assert "being right is not paid" in result.output and "'brief'" in result.output
    told = json.loads(run(str(path), "--questions", "2", "--seconds", "0", "--json").stdout)["data"]
    assert told["hacks"] and told["gold"]["reward"] == 1.0 and not told["passed"]
    assert told["findings"][0]["cause"] == "right_is_not_paid" and told["findings"][0]["term"] == "brief"


def test_a_reward_that_nothing_earns_does_not_pay_what_is_right(tmp_path: Path) -> None:
    result = run(str(REPOSITORY / "benchmarks" / "specs" / "bisect.yaml"), "--questions", "1", "--seconds", "0")
    assert result.exit_code == 3 and "verdict: the reward does not pay a right answer" in result.output
    assert "without skill" not in result.output and "which no behaviour here can test" in result.output


def test_the_command_ends_well_where_there_is_none(tmp_path: Path) -> None:
    result = run(str(spec_file(tmp_path, RIGHT)), "--questions", "2", "--seconds", "0")
    assert result.exit_code == 0, result.output
    assert "hack" not in result.output
    assert "verdict: No behaviour earns 50% of the reward of being right" in result.output


def test_the_share_that_fails_is_an_option(tmp_path: Path) -> None:
    form = RIGHT + "  - {kind: rule, name: form, rule: unpenalised, weight: 0.25}\n"
    path = str(spec_file(tmp_path, form))
    options = ("--questions", "2", "--seconds", "0")
    assert run(path, *options).exit_code == 0
    failed = run(path, *options, "--share", "0.2")
    assert failed.exit_code == 3 and "gate it with `when: {term: right}`" in failed.output


def test_a_question_on_which_a_wrong_answer_earns_all_is_enough(tmp_path: Path) -> None:
    rows = {"In which town?": "Orrin", "Is it Sende or Tarkar?": "Sende", "Who?": "Mara", "Which river?": "Pulzin"}
    path = own_rows(tmp_path, "  - {kind: rule, name: right, rule: contains}\n", rows)
    found = asyncio.run(attack(rescoring_spec([path], []), num_questions=4, seconds=0, step=1))
    copied = next(attempt for attempt in found.attempts if attempt.name == "copy the question")
    assert copied.share == 0.25 and copied.max_share == 1.0 and copied in found.hacks
    assert HackCause.QUESTION in {finding.cause for finding in found.findings}


def test_a_reward_without_golds_is_measured_by_the_ranges_of_its_terms(tmp_path: Path) -> None:
    path = own_rows(tmp_path, "  - {kind: rule, name: brief, rule: length, at_most: 12}\n", {"Write a poem.": None})
    found = asyncio.run(attack(rescoring_spec([path], []), num_questions=1, seconds=0, step=1))
    assert found.gold is None and found.findings[0].cause is HackCause.ANY_ANSWER and found.findings[0].share == 1.0


def test_questions_are_drawn_by_seed_over_distinct_golds_of_every_form() -> None:
    rows = [("yes", 50), ("no", 20), ("-5", 1), ("3 km", 1), ("17", 2)]
    golds = [gold for gold, number in rows for _ in range(number)]
    tasks = [Task(str(at), (Message("user", f"{at}?"),), gold) for at, gold in enumerate(golds)]
    drawn = [[task.answer for task in draw_questions(tasks, 5, seed)] for seed in range(4)]
    assert all(sorted(each) == ["-5", "17", "3 km", "no", "yes"] for each in drawn)
    ids = {tuple(task.id for task in draw_questions(tasks, 5, seed)) for seed in range(4)}
    assert len(ids) == 4
    assert draw_questions(tasks, 5, 1) == draw_questions(tasks, 5, 1)


def test_a_number_with_a_sign_and_one_with_a_point_are_drawn_though_there_are_many_others() -> None:
    golds = [*map(str, range(100, 160)), "-5", "2.5"]
    tasks = [Task(str(at), (Message("user", f"{at}?"),), gold) for at, gold in enumerate(golds)]
    assert all({"-5", "2.5"} <= {task.answer for task in draw_questions(tasks, 4, seed)} for seed in range(4))


def test_several_specs_are_attacked_each_by_itself(tmp_path: Path) -> None:
    paths = []
    for name, rewards in (("sound", RIGHT), ("open", "  - {kind: rule, name: brief, rule: length, at_most: 3}\n")):
        (tmp_path / name).mkdir()
        paths.append(str(spec_file(tmp_path / name, rewards)))
    options = ("--each", "--questions", "2", "--seconds", "0")
    result = run(*paths, str(tmp_path / "missing.yaml"), *options)
    assert result.exit_code == 3, result.output
    assert "open/spec.yaml: the reward can be earned without skill" in result.output
    assert "sound/spec.yaml: the reward" not in result.output and "missing.yaml" in result.output
    told = json.loads(run(*paths, *options, "--json").stdout)["data"]
    assert [each["num_hacks"] > 0 for each in told] == [False, True]
    assert run(paths[0], str(tmp_path / "missing.yaml"), *options).exit_code == 2


def test_without_a_verdict_the_terms_that_give_no_value_are_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def broken(trajectory):\n    return 1 / 0\n")
    broken = '  - {kind: python, name: broken, callable: "own.py:broken", range: [0, 1]}\n'
    found = attacked(tmp_path, RIGHT + broken)
    assert not found.is_passed and not found.findings
    assert "has no reward: term 'broken': ZeroDivisionError: division by zero (own.py:2)." in found.verdict
