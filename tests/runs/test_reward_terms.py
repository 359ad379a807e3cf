"""A whole run's reward, term by term, as the lineage keeps it."""

from pathlib import Path

import pytest

from rlf.lineage.reader import Reader
from rlf.lineage.records import TrajectoryFilter
from rlf.runs.place import open_lineage
from rlf.runs.start import run
from rlf.types import Notice, ScoreState

SPEC = """
extends: {base}
name: terms
rewards:
  - kind: rule
    name: form
    rule: tool_format
    required: 0.1
    weight: {{schedule: linear, from: 0.5, to: 0.1, steps: 2}}
  - {{kind: rule, name: brief, rule: efficiency, calls: 1, weight: 0.1, when: {{term: exact_match}}}}
  - {{kind: rule, name: news, rule: no_repeat, stage: turn, weight: 0.2}}
"""


class Silent:
    """A view that keeps notices."""

    def __init__(self):
        self.notices = []

    def __call__(self, info):
        return self.take

    def take(self, event):
        self.notices += [event] if isinstance(event, Notice) else []


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    from tests.runs.conftest import ROOT, SMALL

    folder = tmp_path_factory.mktemp("terms")
    spec = folder / "terms.yaml"
    spec.write_text(SPEC.format(base=ROOT / "specs" / "search.yaml"))
    cut = [*SMALL, "train.steps=3", "~eval.every", "rollout.max_turns=3"]
    outcome = run([spec], cut, runs_folder=folder / "runs", view=Silent(), command=["rlf", "run"])
    with open_lineage(Path(folder / "runs")) as store:
        reader = Reader(store)
        steps = reader.steps(outcome.run_id)
        heads = reader.trajectories(outcome.run_id, TrajectoryFilter(phase="train"))
        whole = [(head.step, reader.whole(outcome.run_id, head).scored) for head in heads]
    return steps, whole


def test_every_terms_score_is_stored_and_adds_up_to_the_reward(stored):
    _, whole = stored
    assert len(whole) == 24
    for _, scored in whole:
        assert [score.term for score in scored.scores] == ["exact_match", "form", "brief", "news"]
        assert scored.reward == pytest.approx(sum(score.weight * (score.value or 0) for score in scored.scores))
        assert all(score.elapsed_s > 0 and (score.reason or score.turn_values is not None) for score in scored.scores)


def test_a_weight_follows_its_schedule_step_by_step(stored):
    _, whole = stored
    weights = {(step, score.weight) for step, scored in whole for score in scored.scores if score.term == "form"}
    assert {step: weight for step, weight in weights if weight} == pytest.approx({1: 0.5, 2: 0.3, 3: 0.1})


def test_gates_are_closed_exactly_where_the_answer_is_wrong(stored):
    _, whole = stored
    states = {(scored.success, score.state) for _, scored in whole for score in scored.scores if score.term == "brief"}
    assert states == {(1.0, ScoreState.SCORED), (0.0, ScoreState.GATED)}


def test_turn_terms_keep_a_value_per_turn(stored):
    _, whole = stored
    for _, scored in whole:
        assert len(scored.scores[3].turn_values) == len(scored.trajectory.turns)


def test_shares_of_the_variance_add_up_to_1(stored):
    steps, _ = stored
    shares = [[v for name, v in step.metrics.items() if name.endswith("/share")] for step in steps]
    assert any(shares)
    assert all(sum(each) == pytest.approx(1) for each in shares if each)
