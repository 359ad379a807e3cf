"""A comparison as a page shows it: curves of every arm, the matrix of questions, one question turn beside turn."""

from dataclasses import replace

import pytest

from rlf.apps.compare.page import view_comparison, view_question
from rlf.core import RlfError
from rlf.core.errors import NotFoundError
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.runs.trajectories import Openings

from ...reports.synthetic import events, run_record

NAMES = ("20260101-000000-aaaa", "20260101-000000-bbbb")


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Two runs of one spec that differ in their seeds."""
    with open_store(tmp_path_factory.mktemp("compared") / "rlf.db") as store:
        for seed, name in enumerate(NAMES):
            start_run(store, replace(run_record(), id=name, folder=f"/runs/{name}", seed=seed))
            with Recorder(store, name) as recorder:
                for event in events(num_steps=2, eval_every=1, num_questions=6, seed=seed):
                    recorder(event)
        yield Reader(store)


def test_two_runs_are_two_arms_with_curves_and_a_mark_for_each_question(reader):
    found = view_comparison(reader, NAMES, None)
    assert [(curves.letter, [member.run_id for member in curves.members]) for curves in found.curves] == [
        ("A", [NAMES[0]]),
        ("B", [NAMES[1]]),
    ]
    (member,) = found.curves[0].members
    assert member.steps == (1, 2) and len(member.values["success"]) == 2
    assert found.results and found.origins and found.title


def test_a_question_is_shown_as_both_arms_answered_it_last(reader):
    task_id = "heldout-0000"
    found = view_question(
        reader, NAMES, "sampled", task_id, ("A", "B"), lambda run_id: Openings(reader.get_run(run_id))
    )
    assert (found.task_id, found.left, found.right) == (task_id, "A", "B")
    assert "employer of Bitbal" in found.question


def test_an_arm_or_an_answer_that_is_not_there_is_named(reader):
    def view(task_id, letters):
        view_question(reader, NAMES, "sampled", task_id, letters, lambda run_id: Openings(reader.get_run(run_id)))

    with pytest.raises(RlfError, match="arm: got 'C'; expected one of A, B"):
        view("heldout-0000", ("A", "C"))
    with pytest.raises(NotFoundError, match="no sampled answer to 'absent' is kept"):
        view("absent", ("A", "B"))
