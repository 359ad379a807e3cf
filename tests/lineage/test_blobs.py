"""Long contents are kept once, and sums are those of the rows."""

from dataclasses import replace

from rlf.lineage.blobs import MIN_BYTES, Blobs, compress, decompress
from rlf.lineage.calls import tool_call_summary
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.upkeep import begin_resume
from rlf.types import CallRecord, EvaluationFinished, StepFinished

from .builders import run_record, scored, step


def rows(store, table):
    with store.read() as connection:
        return connection.exec_driver_sql(f"select count(*) from {table}").scalar()


def with_result_text(item, text):
    turns = [
        replace(turn, calls=tuple(CallRecord(c.call, replace(c.result, text=text)) for c in turn.calls))
        for turn in item.trajectory.turns
    ]
    return replace(item, trajectory=replace(item.trajectory, turns=tuple(turns)))


def test_a_blob_holds_what_was_put_in():
    content = bytes(range(256)) * 9
    assert decompress(compress(content)) == content
    assert len(compress(content)) < len(content)


def test_short_texts_stay_in_their_rows():
    blobs = Blobs()
    assert blobs.keep_long("x" * (MIN_BYTES - 1)) == ("x" * (MIN_BYTES - 1), None)
    text, name = blobs.keep_long("é" * MIN_BYTES)
    assert (text, len(name)) == ("", 64)
    assert blobs.data_by_hash[name].decode() == "é" * MIN_BYTES


def test_a_result_that_comes_back_often_is_kept_once(store, run_id, reader):
    text = "a passage " * 100
    items = [with_result_text(scored(8, num_calls=3), text) for _ in range(4)]
    with Recorder(store, run_id) as recorder:
        recorder(StepFinished(1, {}, items, [0.0] * 4))
        recorder(StepFinished(2, {}, items, [0.0] * 4))
    assert rows(store, "tool_calls") == 24
    assert rows(store, "blobs") == 2  # the text, and the one task
    assert reader.trajectory(run_id, k=3, step=2).scored == items[3]


def test_rollouts_of_one_row_share_their_task(store, run_id):
    group = [replace(scored(8).trajectory, sample_index=i) for i in range(3)]
    with Recorder(store, run_id) as recorder:
        recorder(StepFinished(1, {}, [replace(scored(8), trajectory=t) for t in group], [0.0] * 3))
    with store.read() as connection:
        names = connection.exec_driver_sql("select distinct task_sha256 from trajectories").scalars().all()
        kept = connection.exec_driver_sql("select sha256 from blobs").scalars().all()
    assert len(names) == 1 and names[0] in kept


def test_sums_are_those_of_the_rows_and_follow_a_resume(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        for number in (1, 2, 3):
            recorder(step(number, 4, num_calls=2))
        recorder(EvaluationFinished(2, "greedy", {}, [scored(8, num_calls=3)]))
    totals = reader.step_totals(run_id)
    assert [(t.step, t.num_trajectories, t.num_tokens, t.num_calls) for t in totals] == [
        (number, 4, 600, 8) for number in (1, 2, 3)
    ]
    assert [tool.num_calls for tool in tool_call_summary(reader, run_id)] == [3 * 8 + 3]
    start_run(store, run_record("other"))
    begin_resume(store, run_id, 1)
    assert [t.step for t in reader.step_totals(run_id)] == [1]
    assert [tool.num_calls for tool in tool_call_summary(reader, run_id)] == [8]


def test_a_step_recorded_again_replaces_its_sums(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(step(1, 4))
        recorder(step(1, 2))
    assert [t.num_trajectories for t in reader.step_totals(run_id)] == [2]
    assert [tool.num_calls for tool in tool_call_summary(reader, run_id)] == [6]
