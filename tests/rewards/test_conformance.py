"""What holds for every rule and every kind of term: a new file is enrolled by existing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from rlf.rewards import RULES, TERM_KINDS, Stage, Term, TrajectoryFacts
from rlf.types import FailureClass, Outcome, Scored, ScoreState, Trajectory

from .judges import Judge
from .scoring import score, score_with

pytestmark = pytest.mark.usefixtures("warm_math")
FOLDER = Path(__file__).parent
JUDGE = Judge(lambda body: '{"reason": "as it is", "score": 7}')
KEYS_BY_KIND: dict[str, dict[str, Any]] = {
    "env": {"score": "goal"},
    "judge": {"endpoints": [JUDGE.endpoint()]},
    "python": {"callable": "functions.py:right"},
    "rule": {"rule": "exact_match"},
    "verify": {"tool": "check", "arguments": {"input": "{{ answer }}"}},
}
SPECS = sorted((Path(__file__).parents[2] / "reward_specs").glob("*.yaml"))
IN_PROCESSES = {"math"}
"""Rules that start processes: asked about many trajectories at once."""


@pytest.fixture(scope="session", autouse=True)
def _judge() -> Iterator[None]:
    with JUDGE.serving():
        yield


def rule(name: str, **keys: Any) -> Term:
    return Term.model_validate({"name": "term", "kind": "rule", "rule": name, **RULES.get(name).sample.options, **keys})


def terms() -> list[Any]:
    kinds = [
        pytest.param(Term.model_validate({"name": "term", "kind": kind, **keys}, context={"folder": FOLDER}), id=kind)
        for kind, keys in KEYS_BY_KIND.items()
    ]
    rules = [pytest.param(rule(name), id=f"rule-{name}") for name in RULES.names()]
    turns = [
        pytest.param(rule(name, stage="turn"), id=f"turn-{name}")
        for name in RULES.names()
        if RULES.get(name).judges_turns
    ]
    return kinds + rules + turns


def shipped() -> list[Any]:
    context = [(path, {"folder": path.parent}) for path in SPECS]
    return [
        pytest.param(Term.model_validate(yaml.safe_load(path.read_text()), context=folder), id=path.name)
        for path, folder in context
    ]


def sample_of(name: str, **changes: Any) -> Trajectory:
    return TrajectoryFacts.model_validate(RULES.get(name).sample.gold | changes).trajectory()


def test_every_kind_is_tried() -> None:
    assert KEYS_BY_KIND.keys() == set(TERM_KINDS.names())


@pytest.mark.parametrize("name", RULES.names())
def test_a_gold_trajectory_scores_what_its_rule_says_is_best(name: str) -> None:
    (said,) = score(sample_of(name), rule(name)).scores
    assert (said.value, said.state) == (pytest.approx(RULES.get(name).sample.best), ScoreState.SCORED)


@pytest.mark.parametrize("name", [name for name in RULES.names() if RULES.get(name).judges_turns])
def test_a_gold_trajectory_scores_as_much_turn_by_turn(name: str) -> None:
    (said,) = score(sample_of(name), rule(name, stage="turn")).scores
    assert said.value == pytest.approx(RULES.get(name).sample.best)
    assert said.turn_values is not None and len(said.turn_values) == len(sample_of(name).turns)


@pytest.mark.parametrize("name", RULES.names())
@pytest.mark.parametrize("answer", [None, "", " \n"])
def test_an_empty_trajectory_scores_0_or_less(name: str, answer: str | None) -> None:
    scored = score(sample_of(name, answer=answer, turns=[]), rule(name))
    assert scored.reward is not None and scored.reward <= 0


@pytest.mark.parametrize("name", RULES.names())
def test_a_malformed_trajectory_scores_what_its_rule_says(name: str) -> None:
    turns = [{"text": "<tool_call>{", "failures": ["unterminated"]}]
    scored = score(sample_of(name, answer=None, turns=turns), rule(name))
    assert scored.reward == pytest.approx(RULES.get(name).sample.malformed)


LONG = ["9" * 5000, "a" * 100_000, " " * 100_000, "(" * 3000, "[" * 3000, "answer is" + " " * 50_000]
ANSWERS = st.none() | st.text(max_size=40) | st.sampled_from(["nan", "inf", "\0", "\ud800", *LONG])
ODD_GOLDS = ["42", ["", "42"], "the", "nan", 42, 4.5, True, {"a": 1}, [None], [], None]
GOLDS = st.text(max_size=20) | st.sampled_from(ODD_GOLDS)
COLUMNS = st.sampled_from([{}, {"unsolved_set": "{"}, {"unsolved_set": {"search": ["42", ""]}}, {"unsolved_set": [1]}])
CALLS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["search", "", "x" * 1000]),
        "arguments": st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=5) | st.floats(allow_nan=False)),
        "result": st.text(max_size=20) | st.just("42"),
        "outcome": st.sampled_from(list(Outcome)),
    }
)
TURNS = st.fixed_dictionaries(
    {
        "text": st.text(max_size=40),
        "calls": st.lists(CALLS, max_size=3),
        "failures": st.lists(st.sampled_from(list(FailureClass)), max_size=2),
    }
)


@st.composite
def hostile(draw: st.DrawFn) -> Trajectory:
    facts = TrajectoryFacts.model_construct(answer=draw(ANSWERS), gold=draw(GOLDS), columns=draw(COLUMNS))
    turns = TrajectoryFacts.model_validate({"turns": draw(st.lists(TURNS, max_size=3))}).turns
    return facts.model_copy(update={"turns": turns}).trajectory()


def check(term: Term, trajectory: Trajectory, scored: Scored) -> None:
    (said,) = scored.scores
    assert (said.value is None) == (scored.reward is None)
    assert said.value is not None or said.reason
    assert said.state is not ScoreState.FAULT, said.reason
    low, high = term.bounds
    assert said.value is None or (math.isfinite(said.value) and low <= said.value <= high)
    if term.stage is Stage.TURN and said.turn_values is not None:
        assert len(said.turn_values) == len(trajectory.turns)


HERE = {each.id: each.values[0] for each in terms() if each.id not in {f"rule-{name}" for name in IN_PROCESSES}}


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trajectory=hostile())
def test_no_trajectory_makes_a_term_break_its_promises(trajectory: Trajectory) -> None:
    """Each term: to make a trajectory costs more than to score it."""

    async def score_each() -> None:
        for name, term in HERE.items():
            note(name)
            check(term, trajectory, *await score_with([term], [trajectory]))

    asyncio.run(score_each())


@pytest.mark.parametrize("name", sorted(IN_PROCESSES))
def test_no_text_makes_a_rule_in_processes_break_its_promises(name: str, trajectory: Any) -> None:
    term = rule(name, timeout_s=0.5)
    texts = [
        None,
        "",
        "nan",
        "\0",
        "\ud800",
        "9" * 5000,
        "\n",
        '"',
        "9!!!!!!",
        "\\frac{1}{0}",
        "1" + "/2" * 500,
    ]
    tried = [trajectory(answer, gold) for answer in texts for gold in ("42", "", "nan", "\n", {"a": 1})]
    tried.append(trajectory("(" * 2000, "42"))  # takes all of its time and a process
    for one, scored in zip(tried, asyncio.run(score_with([term], tried)), strict=True):
        check(term, one, scored)


@pytest.mark.parametrize("term", terms())
def test_scoring_twice_gives_the_same(term: Term, trajectory: Any) -> None:
    tried = [
        trajectory("41 or 42", ["42", "43"], outcomes=(Outcome.OK, Outcome.UNKNOWN_TOOL), failures=1),
        trajectory("42", "42", outcomes=(Outcome.OK,), unsolved_set={"search": ["42"]}),
    ]
    once, twice = (
        [replace(said, elapsed_s=0.0) for each in asyncio.run(score_with([term], tried)) for said in each.scores]
        for _ in range(2)
    )
    assert once == twice


@pytest.mark.parametrize("term", [*terms(), *shipped()])
def test_a_dumped_term_validates_to_itself(term: Term) -> None:
    assert Term.model_validate(term.model_dump(mode="json", by_alias=True)) == term


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_a_shipped_file_says_what_it_is(path: Path) -> None:
    assert path.read_text().startswith("# ")
