"""A run that is continued: the changes that it continues with, and what its hidden terms have shown so far."""

from dataclasses import replace

import pytest

from rlf.apps.keep.verification import verify_folder
from rlf.core import RlfError
from rlf.core.redact import Redactor
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import AcceptedChange
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.lineage.upkeep import accept_changes, begin_resume, refuse_running, training_scores
from rlf.types import EvaluationFinished, StepFinished

from .builders import run_record, scored


def change(step, before, after, path="tools/s.yaml"):
    return AcceptedChange(step, "tool", path, before, after, None, 100.0 + step)


def test_an_accepted_change_is_kept_with_its_new_text_without_secrets(store, run_id, reader, path):
    store.redactor = Redactor({"API_KEY": "hunter-2-hunter"})
    made, other = change(2, "a", "b"), change(2, "a", "", "tools/gone.yaml")
    accept_changes(store, run_id, [made, other], {("tool", "tools/s.yaml"): "key: hunter-2-hunter", ("tool", "x"): ""})
    gone, kept = reader.changes(run_id)
    assert gone == other
    assert replace(kept, text_sha256=None) == made
    assert reader.texts([kept.text_sha256]) == {kept.text_sha256: "key: [redacted]"}
    assert verify_folder(path.parent).faults == ()


def test_changes_at_one_step_are_one_change_from_what_the_first_found(store, run_id, reader):
    start_run(store, run_record("other"))
    for name in (run_id, "other"):
        accept_changes(store, name, [change(2, "a", "b")], {})
    accept_changes(store, run_id, [change(2, "b", "c"), change(4, "c", "d")], {})
    assert [(each.step, each.old_sha256, each.sha256) for each in reader.changes(run_id)] == [
        (2, "a", "c"),
        (4, "c", "d"),
    ]
    accept_changes(store, run_id, [change(2, "c", "a")], {})
    assert [each.step for each in reader.changes(run_id)] == [4], "what was taken back is no change"
    assert [each.sha256 for each in reader.changes("other")] == ["b"]


def test_a_run_that_is_running_is_refused_before_anything_is_prepared_and_one_that_is_not_there_too(
    path, store, run_id
):
    with open_store(path) as other, pytest.raises(RlfError, match="still running as process"):
        refuse_running(other, run_id)
    store.close()
    with open_store(path) as other:
        refuse_running(other, run_id)
        with pytest.raises(RlfError, match="nobody: not in the lineage"):
            refuse_running(other, "nobody")


def test_who_has_lost_a_run_that_was_taken_over_is_named(path, store, run_id, reader):
    with store.read() as connection:
        owner = connection.exec_driver_sql("select pid, node from runs").one()
    with open_store(path) as other:
        begin_resume(other, run_id, 0, take_over=True)
    (event,) = reader.events(run_id)
    assert event.text.startswith(f"taken over after step 0 from process {owner.pid} on {owner.node}, whose last")


def test_scores_of_training_are_read_from_the_first_evaluation_on_in_the_order_of_their_play(store, run_id):
    def lone(seed, success):
        return replace(scored(seed, success=success), reward=success)

    unscored = replace(scored(5), reward=None, scores=())
    with Recorder(store, run_id) as recorder:
        recorder(EvaluationFinished(0, "greedy", {}, [lone(1, 0.1)]))
        recorder(EvaluationFinished(0, "sampled", {}, [lone(2, 0.2), lone(3, 0.3)]))
        recorder(EvaluationFinished(1, "sampled", {}, [lone(4, 0.4)]))
        recorder(StepFinished(1, {}, [unscored, lone(16, 0.6)], [0.0, 0.0]))
    with store.read() as connection:
        found = [
            (*place, each.term, each.value) for *place, each in training_scores(connection, run_id, {"exact_match"})
        ]
        assert list(training_scores(connection, run_id, {"another"})) == []
    assert found == [
        (0, 0, "q0", "exact_match", 0.2),
        (0, 1, "q0", "exact_match", 0.3),
        (1, 1, "q2", "exact_match", 0.6),
    ]
