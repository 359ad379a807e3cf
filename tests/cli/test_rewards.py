"""`rlf rewards`: terms listed, shown, tried and used on what is saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.rewards import RULES, TrajectoryFacts
from rlf.types import Score, Scored, StepFinished

from ..reports.synthetic import run_record
from ..rewards.judges import judging

Rlf = Callable[..., Result]
ROOT = Path(__file__).parents[2]
SPEC = """
name: mine
model: {path: builtin:tiny}
data: {train: {path: builtin:encyclopedia/train, prompt: question}}
rewards:
  - {kind: rule, name: right, rule: exact_match}
  - {kind: rule, name: short, rule: length, at_most: 2, weight: 0.5, when: {term: right}}
train: {algorithm: reinforce_baseline, steps: 2}
"""
TERM = """
kind: rule
name: right
rule: exact_match
tests:
  - {gold: Lyon, answer: the Lyon, expect: 1}
  - {gold: Lyon, answer: Nice, expect: 0}
  - {answer: Nice, expect: null}
"""
PAYS_FOR_NOTHING = "{kind: rule, name: calm, rule: expression, formula: 1 - 0.1 * calls}\n"


@pytest.fixture
def spec(rlf: Rlf, tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_show_prints_what_the_rules_of_a_spec_read_of_its_golds_beside_them(rlf: Rlf, tmp_path: Path) -> None:
    golds = ["1 km", "March 1, 2024", "01/03/2024", "Paris", "5 or 6"]
    rows = [json.dumps({"id": f"r{at}", "question": f"{at}?", "answer": gold}) for at, gold in enumerate(golds)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    path = tmp_path / "spec.yaml"
    text = SPEC.replace(
        "{path: builtin:encyclopedia/train, prompt: question}", "{path: rows.jsonl, prompt: question, answer: answer}"
    )
    path.write_text(text.replace("rule: length, at_most: 2", "rule: numeric"))
    shown = json.loads(rlf("rewards", "show", path, "--json").stdout)["data"]
    read = {(each["term"], each["row"]): (each["form"], each["value"], each["fault"]) for each in shown["golds"]}
    assert read["right", "r0"] == read["short", "r0"] == ("number", "1000 m", "")
    assert read["right", "r1"] == ("date", "2024-03-01", "")
    assert read["right", "r2"] == ("text", "01/03/2024", "may be two dates, and is compared as text: write 2024-03-01")
    assert read["short", "r4"][2] == "is no number, and is unscorable"
    printed = one_line(rlf("rewards", "show", path).stdout)
    assert "right r0 1 km number 1000 m" in printed and "golds are 2 text, 1 number, 1 date, 1 text with a" in printed


def test_golds_of_a_file_without_data_are_refused(rlf: Rlf, tmp_path: Path) -> None:
    (tmp_path / "term.yaml").write_text(TERM)
    assert "declares a term and no data" in rlf("rewards", "show", tmp_path / "term.yaml").stderr


def test_list_shows_weight_and_gate(rlf: Rlf, spec: Path) -> None:
    listed = json.loads(rlf("rewards", "list", spec, "--json").stdout)["data"]
    assert [(term["name"], term["kind"], term["weight"], term["gate"]) for term in listed] == [
        ("right", "exact_match", "1", ""),
        ("short", "length", "0.5", "when right"),
    ]
    assert "when right" in one_line(rlf("rewards", "list", spec).stdout)


@pytest.mark.parametrize("command", ["rewards list", "rewards test"])
def test_overrides_of_a_spec_hold_and_those_of_a_part_are_refused(rlf: Rlf, spec: Path, command: str) -> None:
    wrong = rlf(*command.split(), str(spec), "rewards.0.wieght=2")
    assert wrong.exit_code == 2 and "wieght: unknown key 'wieght'; did you mean 'weight'?" in one_line(wrong.stderr)
    refused = rlf(*command.split(), str(ROOT / "reward_specs/exact_match.yaml"), "weight=2")
    assert refused.exit_code == 2 and "is no spec, and overrides are of specs" in one_line(refused.stderr)


def test_list_of_kinds_has_every_rule(rlf: Rlf) -> None:
    listed = json.loads(rlf("rewards", "list", "--kinds", "--json").stdout)["data"]
    assert {item["name"] for item in listed} >= {*RULES.names(), "python"}
    assert "ftrl" in rlf("rewards", "list", "--kinds").stdout


def test_show_tells_a_rules_formula_and_keys(rlf: Rlf) -> None:
    shown = rlf("rewards", "show", "ftrl")
    assert shown.exit_code == 0
    assert "2 q / (p + 1)" in shown.stdout
    assert "unsolved_set" in shown.stdout
    keys = json.loads(rlf("rewards", "show", "numeric", "--json").stdout)["data"]["keys"]
    assert [key["name"] for key in keys] == ["tolerance"]


def test_an_unknown_rule_is_answered_with_those_there_are(rlf: Rlf) -> None:
    result = rlf("rewards", "show", "ftlr")
    assert result.exit_code == 2
    assert "ftrl" in result.stderr


def test_tests_of_a_term_and_what_must_not_gain_are_tried(rlf: Rlf, tmp_path: Path) -> None:
    file = tmp_path / "right.yaml"
    file.write_text(TERM)
    result = rlf("rewards", "test", file, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["data"]
    assert [(trial["what"], trial["value"], trial["ok"]) for trial in told] == [
        ("tests[0]", 1.0, True),
        ("tests[1]", 0.0, True),
        ("tests[2]", None, True),
        ("gold", 1.0, True),
        ("empty", 0.0, True),
        ("malformed", 0.0, True),
        ("long", 0.0, True),
    ]


def test_a_test_that_does_not_hold_ends_with_3_and_says_what_came(rlf: Rlf, tmp_path: Path) -> None:
    file = tmp_path / "right.yaml"
    file.write_text(TERM.replace("expect: 0", "expect: 0.5").replace("expect: null", "expect: 1"))
    result = rlf("rewards", "test", file)
    assert result.exit_code == 3
    assert "2 of 7 trials failed" in result.stderr
    assert "got 0, expected 0.5" in one_line(result.stdout)
    assert "got no value: task example has no gold" in one_line(result.stdout)


def test_a_term_that_pays_for_doing_nothing_fails(rlf: Rlf, tmp_path: Path) -> None:
    file = tmp_path / "calm.yaml"
    tests = "tests: [{turns: [{calls: [{name: s}]}], expect: 0.9}]"
    file.write_text(PAYS_FOR_NOTHING.replace("}", f", {tests}}}", 1))
    result = rlf("rewards", "test", file)
    assert result.exit_code == 3
    assert "got 1, expected at most 0" in one_line(result.stdout)


GOLDS = [
    ("kind: rule, rule: exact_match", "gold", True, ""),
    ("kind: rule, rule: numeric, tolerance: 0.5", "gold", True, ""),
    ("kind: rule, rule: rl_factory_search, format_score: 0.2", "gold", True, ""),
    ("kind: rule, rule: ftrl, match: words", "gold", True, ""),
    ("kind: rule, rule: regex, pattern: x", "gold", None, "no test reaches 1"),
    ("kind: rule, rule: regex, pattern: x, tests: [{answer: a, expect: 0}]", "gold", None, "no test reaches 1"),
    ("kind: rule, rule: regex, pattern: x, tests: [{answer: x, expect: 1}]", "tests[0]", True, ""),
    ("kind: rule, rule: expression, formula: calls, range: [0, 9], weight: -1", "gold", None, "no test reaches 0"),
    ("kind: python, callable: 'own.py:own'", "gold", None, "the term has no best value, since its range is open"),
    ("kind: python, callable: 'own.py:own', range: [0, 2]", "gold", None, "no test reaches 2"),
    ("kind: python, callable: 'own.py:own', range: [0, 2], tests: [{answer: x, expect: 2}]", "tests[0]", True, ""),
]


@pytest.mark.parametrize(("keys", "what", "ok", "reason"), GOLDS)
def test_what_is_gold_is_reported_and_so_is_where_nothing_is(
    rlf: Rlf, tmp_path: Path, keys: str, what: str, ok: bool | None, reason: str
) -> None:
    (tmp_path / "own.py").write_text("def own(trajectory):\n    return 2.0 * (trajectory.answer == 'x')\n")
    file = tmp_path / "term.yaml"
    file.write_text(f"{{name: term, {keys}}}")
    result = rlf("rewards", "test", file, "--json")
    assert result.exit_code == (3 if ok is None else 0), result.output
    assert ("untested terms: term" in result.stderr) == (ok is None)
    trials = {trial["what"]: trial for trial in json.loads(result.stdout)["data"]}
    assert trials[what]["ok"] is ok and reason in trials[what]["reason"]
    assert ("gold" in trials) == (what == "gold")
    assert {"empty", "malformed", "long"} <= trials.keys()
    assert ("untested" in one_line(rlf("rewards", "test", file).stdout).split()) == (ok is None)


def test_a_term_that_changes_its_mind_fails(rlf: Rlf, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("seen = []\ndef own(trajectory):\n    seen.append(1)\n    return len(seen)\n")
    file = tmp_path / "own.yaml"
    file.write_text("{kind: python, name: own, callable: 'own.py:own', tests: [{answer: x, expect: 1}]}")
    result = rlf("rewards", "test", file)
    assert result.exit_code == 3
    assert "a second time it was" in one_line(result.stdout)


@pytest.mark.parametrize(
    ("said", "why"), [({"status": 429}, "HTTP 429"), ("Sorry, no.", "no single JSON object"), ('{"score": 5}', None)]
)
def test_a_judge_of_whom_no_verdict_comes_is_untested(rlf: Rlf, tmp_path: Path, said: object, why: str | None) -> None:
    with judging(said) as judge:
        spec = {"kind": "judge", "name": "good", "endpoints": [judge.endpoint()], "timeout_s": 1.5, "cache": None}
        (tmp_path / "judge.yaml").write_text(json.dumps(spec))
        result = rlf("rewards", "test", tmp_path / "judge.yaml", "--json")
    trials = {trial["what"]: trial for trial in json.loads(result.stdout)["data"]}
    if why is None:
        assert result.exit_code == 0 and trials["short"]["value"] == pytest.approx(4 / 9)
    else:
        assert result.exit_code == 3 and trials.keys() == {"gold"}
        assert "of 2 trajectories none had an answer" in trials["gold"]["reason"] and why in trials["gold"]["reason"]
        assert len(judge.asked) == 2 or isinstance(said, dict)  # each once; of what is too much, more often


def test_every_fault_of_every_file_is_reported_at_once(rlf: Rlf, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("kind: rule\nname: x\nrule: exact\n")
    result = rlf("rewards", "test", tmp_path / "a.yaml", tmp_path / "b.yaml")
    assert result.exit_code == 2
    assert "a.yaml:3:7" in result.stderr and "b.yaml:3:7" in result.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "reward_specs").glob("*.yaml")), ids=lambda path: path.name)
def test_the_tests_of_a_shipped_file_hold(rlf: Rlf, path: Path) -> None:
    result = rlf("rewards", "test", path)
    if "kind: judge" in path.read_text() or path.name == "same_rows.yaml":  # without the judge, without the tool
        assert result.exit_code == 3 and "untested terms: " in result.stderr
        return
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["search_ftrl", "search_r1_reward"])
def test_the_tests_of_a_shipped_spec_hold(rlf: Rlf, name: str) -> None:
    result = rlf("rewards", "test", ROOT / "specs" / f"{name}.yaml")
    assert result.exit_code == 0, result.output


LINES = [
    {"task": "q", "gold": "Lyon", "answer": "Lyon", "reward": 0.0, "scores": {"right": 0.0}},
    {"task": "q", "gold": "Lyon", "answer": "in Nice I think", "reward": 1.0, "scores": {"right": 1.0}},
    {"task": "q", "gold": "Lyon", "answer": "Nice", "reward": 0.0, "scores": {"right": 0.0}},
]


def test_saved_trajectories_are_scored_anew_with_what_moved_and_by_which_term(
    rlf: Rlf, spec: Path, tmp_path: Path
) -> None:
    file = tmp_path / "saved.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    told = json.loads(rlf("rewards", "score", spec, "--file", file, "--json").stdout)["data"]["trajectories"]
    # right 1 + 0.5 x short 1; 0; 0
    assert [(each["before"]["reward"], each["after"]["reward"]) for each in told] == [
        (0.0, 1.5),
        (1.0, 0.0),
        (0.0, 0.0),
    ]
    assert told[0]["changes"] == {"right": 1.0, "short": 0.5}
    # reinforce_baseline: R - mean is 1, -0.5, -0.5 on 1, 4 and 1 tokens; whitened over 6 tokens, whose mean is -0.25
    # and variance (1.25^2 + 5 * 0.25^2) / 6 = 0.3125: 1.25 and -0.25 over sqrt(0.3125)
    assert [each["after"]["advantage"] for each in told] == pytest.approx([5**0.5, -(0.2**0.5), -(0.2**0.5)], abs=1e-4)
    shown = one_line(rlf("rewards", "score", spec, "--file", file).stdout)
    assert "2 of 3 rewards moved; 2 of 3 advantages change sign" in shown
    assert "right +1" in shown


def test_an_estimator_with_a_critic_says_that_there_are_no_advantages(rlf: Rlf, spec: Path, tmp_path: Path) -> None:
    file = tmp_path / "saved.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    arguments = ("rewards", "score", spec, "train.algorithm=gae", "--file", file)
    assert "2 of 3 rewards moved; no advantages: gae needs a critic's values" in one_line(rlf(*arguments).stdout)
    told = json.loads(rlf(*arguments, "--json").stdout)["data"]
    assert told["no_advantages"].startswith("no advantages: gae")
    assert {each["after"]["advantage"] for each in told["trajectories"]} == {None}


def test_a_changed_weight_is_tried_by_an_override(rlf: Rlf, spec: Path, tmp_path: Path) -> None:
    file = tmp_path / "saved.jsonl"
    file.write_text(json.dumps(LINES[0]))
    told = json.loads(rlf("rewards", "score", spec, "rewards.1.weight=3", "--file", file, "--json").stdout)
    assert told["data"]["trajectories"][0]["after"]["reward"] == 4.0


def test_the_trajectories_of_a_run_are_scored_with_their_rows(rlf: Rlf, spec: Path, tmp_path: Path) -> None:
    facts = TrajectoryFacts(gold="Lyon", answer="Lyon", columns={"hops": 2})
    scores = (Score("right", 0.0, 1.0, "wrong"),)
    scored = [Scored(facts.trajectory(f"t{k}", task_id="q"), scores, 0.0, 0.0) for k in range(2)]
    (tmp_path / "runs").mkdir()
    record = run_record()
    with open_store(tmp_path / "runs" / "rlf.db", create=True) as store:
        start_run(store, record)
        with Recorder(store, record.id) as recorder:
            recorder(StepFinished(1, {}, scored, [0.5, 0.5]))
    (tmp_path / "own.py").write_text("def hops(trajectory, hops):\n    return hops\n")
    spec.write_text(SPEC.replace("train: {alg", "  - {kind: python, name: hops, callable: 'own.py:hops'}\ntrain: {alg"))
    result = rlf("rewards", "score", spec, "--run", "latest", "--runs", tmp_path / "runs", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["data"]
    assert told["source"].endswith("train step 1")
    assert [each["after"]["reward"] for each in told["trajectories"]] == [3.5, 3.5]


def test_a_line_that_is_wrong_is_reported_by_its_number(rlf: Rlf, spec: Path, tmp_path: Path) -> None:
    file = tmp_path / "saved.jsonl"
    file.write_text('{"answer": "x"}\n{"anwser": "x"}\n{\n')
    result = rlf("rewards", "score", spec, "--file", file)
    assert result.exit_code == 2
    assert "saved.jsonl:2:1 anwser" in result.stderr and "saved.jsonl:3:1" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["--run", "latest", "--file", "x"], ["--file", "absent.jsonl"]])
def test_what_is_to_be_scored_must_be_named_once(rlf: Rlf, spec: Path, arguments: list[str]) -> None:
    assert rlf("rewards", "score", spec, *arguments).exit_code == 2


COLUMN_TERM = "kind: python\nname: near\ncallable: near.py:score\nrange: [0, 1]\n"
COLUMN_CODE = """
def score(trajectory, article, gold_number):
    return float(bool(article) and trajectory.answer == str(gold_number))
"""


def write_column_term(folder: Path) -> None:
    (folder / "near.py").write_text(COLUMN_CODE)
    (folder / "near.yaml").write_text(COLUMN_TERM)
    (folder / "rows.jsonl").write_text('{"question": "How many?", "gold_number": 7, "article": "a"}\n')
    (folder / "spec.yaml").write_text(
        "name: s\nmodel: {path: builtin:tiny}\nengine: local\nrewards: [near.yaml]\n"
        "data: {train: {path: rows.jsonl, prompt: question, answer: gold_number}}\n"
        "train: {algorithm: grpo, steps: 1, prompts_per_step: 1}\nrollout: {num_generations: 2}\n"
    )


def test_a_function_that_reads_columns_is_tried_on_the_specs_own_first_row(rlf, tmp_path):
    write_column_term(tmp_path)
    tried = rlf("rewards", "test", "spec.yaml", "--json")
    assert tried.exit_code == 0, tried.output
    assert "tried on data.train's first row: How many?" in tried.stderr
    trials = json.loads(tried.stdout)["data"]
    assert {trial["what"]: trial["value"] for trial in trials} == {"gold": 1, "empty": 0, "malformed": 0, "long": 0}


def test_without_a_row_a_function_that_reads_columns_is_untested_and_not_failed(rlf, tmp_path):
    write_column_term(tmp_path)
    tried = rlf("rewards", "test", "near.yaml")
    assert tried.exit_code == 3 and "untested terms: near" in tried.stderr
    (trial,) = json.loads(rlf("rewards", "test", "near.yaml", "--json").stdout)["data"]
    assert "'article', 'gold_number' of the task's row. Name the spec" in trial["reason"]
