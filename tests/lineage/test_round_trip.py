"""What is recorded is read back bit for bit."""

import math
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlf.lineage.calls import tool_call_summary
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import Checkpoint
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.types import (
    Attempt,
    CallRecord,
    CheckpointSaved,
    EvaluationFinished,
    FailureClass,
    Image,
    Message,
    Notice,
    Outcome,
    ParseFailure,
    RunFinished,
    RunStatus,
    Score,
    Scored,
    ScoreState,
    ScoreUsage,
    StepFinished,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)
from rlf.types.trajectory import MissingRewardCause

from .builders import run_record, scored, step

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
NUMBER = st.floats(allow_nan=False)
SECONDS = st.floats(0, 1e6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
JSON_VALUES = st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3))
LONG_TEXT = st.one_of(TEXT, TEXT.map(lambda text: text + "long " * 100))


def cut_result(original, **fields):
    return ToolResult(original=original, sha256=sha256(original.encode()).hexdigest(), **fields)


COMMON = {
    "outcome": st.sampled_from(Outcome),
    "text": LONG_TEXT,
    "coerced": st.booleans(),
    "usage": st.dictionaries(TEXT, SECONDS, max_size=2),
    "structured": JSON_VALUES,
    "images": st.lists(st.builds(Image, st.binary(max_size=9), st.just("image/png")), max_size=2).map(tuple),
}
WHOLE = st.builds(
    ToolResult,
    **COMMON,
    attempts=st.lists(st.builds(Attempt, st.sampled_from(Outcome), SECONDS, st.none() | TEXT), max_size=2).map(tuple),
    queue_s=SECONDS,
    run_s=SECONDS,
    cached=st.booleans(),
    truncated=st.booleans(),
    size_bytes=st.integers(0, 2**40),
    isolation=st.sampled_from(["", "thread"]),
)
RESULTS = WHOLE | st.builds(cut_result, LONG_TEXT, **COMMON)
CALLS = st.builds(
    CallRecord,
    st.builds(ToolCall, TEXT, st.dictionaries(st.text(max_size=5), JSON | st.text(max_size=5), max_size=3)),
    RESULTS,
)
FAILURES = st.builds(ParseFailure, st.sampled_from(FailureClass), TEXT, TEXT, st.integers(0, 10**6), st.booleans())
OFFSET = st.integers(0, 10**6)
TURNS = st.builds(
    Turn,
    OFFSET,
    OFFSET,
    OFFSET,
    st.text(max_size=30),
    st.lists(CALLS, max_size=2).map(tuple),
    st.lists(FAILURES, max_size=2).map(tuple),
    SECONDS,
    SECONDS,
)
TASKS = st.builds(
    Task,
    TEXT,
    st.lists(st.builds(Message, TEXT, TEXT), max_size=3).map(tuple),
    JSON,
    st.none() | TEXT,
    st.dictionaries(TEXT, JSON, max_size=2),
    st.none() | st.lists(TEXT, max_size=2).map(tuple),
)


@st.composite
def trajectories(draw):
    columns = st.tuples(st.integers(0, 2**32 - 1), st.booleans(), st.floats(width=32, allow_nan=False))
    aligned = draw(st.lists(columns, max_size=20))
    return Trajectory(
        id=draw(TEXT),
        task=draw(TASKS),
        sample_index=draw(st.integers(0, 1000)),
        tokens=[token for token, _, _ in aligned],
        action_mask=[sampled for _, sampled, _ in aligned],
        rollout_logprobs=[logprob for _, _, logprob in aligned],
        turns=tuple(draw(st.lists(TURNS, max_size=3))),
        stop=draw(st.sampled_from(StopReason)),
        answer=draw(st.none() | TEXT),
        broken=draw(st.none() | st.builds(MissingRewardCause, TEXT, TEXT, st.booleans(), st.booleans())),
        duration_s=draw(SECONDS),
    )


TURN_VALUES = st.none() | st.lists(st.none() | NUMBER, max_size=3).map(tuple)
COUNT = st.integers(0, 2**40)
USAGE = st.none() | st.builds(ScoreUsage, COUNT, COUNT, COUNT, SECONDS, st.none() | st.floats(-1, 1))
STATE = st.sampled_from(ScoreState)
SCORES = st.builds(Score, TEXT, st.none() | NUMBER, NUMBER, TEXT, SECONDS, STATE, TURN_VALUES, USAGE)
SCORED = st.builds(
    Scored, trajectories(), st.lists(SCORES, max_size=3).map(tuple), st.none() | NUMBER, st.none() | NUMBER
)


@pytest.fixture(scope="module")
def shared():
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "rlf.db") as store:
        start_run(store, run_record("r"))
        yield store


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(SCORED, st.none() | NUMBER), max_size=4), st.dictionaries(TEXT, NUMBER, max_size=3))
def test_any_step_is_read_back_as_it_was_recorded(shared, rows, metrics):
    with Recorder(shared, "r") as recorder:
        recorder(StepFinished(1, metrics, [row for row, _ in rows], [advantage for _, advantage in rows]))
    reader = Reader(shared)
    assert reader.steps("r")[0].metrics == metrics
    assert len(reader.trajectories("r")) == len(rows)
    for k, (expected, advantage) in enumerate(rows):
        stored = reader.trajectory("r", k=k, step=1)
        assert stored.scored == expected
        assert stored.summary.advantage == advantage
        assert stored.summary.num_sampled == expected.trajectory.num_sampled
        assert stored.summary.num_calls == len(expected.trajectory.calls)


def test_an_evaluation_keeps_its_mode_apart(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(EvaluationFinished(0, "sampled", {"success": 0.2}, [scored(1), scored(2)]))
        recorder(EvaluationFinished(0, "greedy", {"success": 0.3}, [scored(3)]))
    greedy, sampled = reader.evaluations(run_id)
    assert (greedy.step, greedy.mode, greedy.metrics) == (0, "greedy", {"success": 0.3})
    assert (sampled.mode, sampled.metrics) == ("sampled", {"success": 0.2})
    assert reader.trajectory(run_id, k=1, phase="sampled").scored == scored(2)
    assert reader.trajectory(run_id, k=0, phase="greedy").scored == scored(3)
    assert reader.trajectory(run_id, k=0, phase="greedy").summary.advantage is None


def test_checkpoints_notices_and_the_end_are_kept(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(CheckpointSaved(5, "/runs/x/step-5", "c" * 64))
        recorder(Notice("warning", "kl is high", {"kl": 2.5}))
        recorder(Notice("info", "and low again", {}))
        recorder(RunFinished(RunStatus.FAILED, 5, "out of memory"))
    saved = reader.checkpoints(run_id)[0]
    assert saved == Checkpoint(5, "/runs/x/step-5", "c" * 64, saved.saved)
    assert [(event.level, event.text, event.data) for event in reader.events(run_id)] == [
        ("warning", "kl is high", {"kl": 2.5}),
        ("info", "and low again", {}),
    ]
    run = reader.get_run(run_id)
    assert (run.status, run.last_step, run.error) == (RunStatus.FAILED, 5, "out of memory")
    assert run.finished is not None and run.finished >= saved.saved


def test_the_record_of_a_run_is_read_back(store, run_id, reader):
    run = reader.get_run(run_id)
    assert run.record == run_record(run_id, started=run.record.started)
    assert (run.status, run.finished, run.last_step) == (RunStatus.RUNNING, None, 0)


def test_metrics_that_are_no_finite_numbers_are_read_back(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(StepFinished(1, {"a": math.nan, "b": math.inf, "c": -math.inf}, [], []))
    metrics = reader.steps(run_id)[0].metrics
    assert math.isnan(metrics["a"])
    assert (metrics["b"], metrics["c"]) == (math.inf, -math.inf)


def test_a_step_recorded_again_replaces_itself(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(step(1, 8))
        recorder(step(2, 8))
        recorder(step(1, 3))
    assert [found.step for found in reader.steps(run_id)] == [1, 2]
    assert [(found.step, found.k) for found in reader.trajectories(run_id)] == [
        *((1, k) for k in range(3)),
        *((2, k) for k in range(8)),
    ]
    assert tool_call_summary(reader, run_id)[0].num_calls == 3 * (3 + 8)


def test_text_that_no_database_takes_is_made_storable(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(Notice("info", "a\ud800b\x00c", {"raw": "\udfff\x00"}))
    event = reader.events(run_id)[0]
    assert event.text == "a\ufffdb\ufffdc"
    assert event.data == {"raw": "\ufffd\x00"}
