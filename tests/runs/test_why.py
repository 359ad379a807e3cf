"""Why a trajectory has its advantage: recomputed from what is stored, and the same to 1e-6."""

from __future__ import annotations

import pytest

from rlf.apps.web.why import explain_advantage, find_paid
from rlf.core.errors import RlfError
from rlf.runs.place import open_reader


def test_recomputed_advantages_are_those_that_were_trained_with(trained):
    folder, run_id = trained
    with open_reader(folder) as reader:
        heads = reader.trajectories(run_id)
    checked = [head for head in heads if head.advantage is not None]
    assert len(checked) > 4
    for head in checked:
        found = explain_advantage(run_id, folder, head.step, head.k)
        assert found.agrees and found.missing == "", found
        assert sum(part.contribution for part in found.terms) == pytest.approx(found.reward)
        assert {member.k for member in found.group} >= {head.k}
        sampled = [value for value in found.tokens if value is not None]
        assert len(sampled) == head.num_sampled and len(found.tokens) == head.num_tokens
        assert sum(sampled) / len(sampled) == pytest.approx(found.stored, abs=1e-6)


def test_a_trajectory_that_is_not_there_is_named(trained):
    folder, run_id = trained
    with pytest.raises(RlfError, match="no training trajectory 999 of step 1"):
        explain_advantage(run_id, folder, 1, 999)


def test_what_is_paid_and_not_right_is_found(trained):
    folder, run_id = trained
    with open_reader(folder) as reader:
        found = find_paid(reader, run_id, 10)
        heads = [head for head in reader.trajectories(run_id) if head.phase == "train" and head.reward is not None]
    wrong = [head for head in heads if (head.success or 0.0) < 1.0]
    assert found.num_wrong == len(wrong)
    right = [head.reward for head in heads if head not in wrong]
    assert found.threshold == (pytest.approx(sum(right) / len(right)) if right else None)
    paid = [head for head in wrong if right and head.reward >= found.threshold]
    assert found.num_paid == len(paid) == sum(step.num_paid for step in found.steps)
