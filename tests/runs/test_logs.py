"""`rlf -v` writes a line when a step, an evaluation or a checkpoint is done."""

import logging

from rlf.runs.sink import log_done
from rlf.types.events import CheckpointSaved, EvaluationFinished, StepFinished


def test_what_is_done_is_one_line_with_its_number_and_seconds(caplog):
    caplog.set_level(logging.INFO, logger="rlf")
    log_done(StepFinished(3, {"time/step_s": 1.54}, [], []))
    log_done(EvaluationFinished(3, "sampled", {"time/total_s": 2.0}, []))
    log_done(CheckpointSaved(3, "checkpoints/3", "00", save_s=0.2))
    assert [record.getMessage() for record in caplog.records] == [
        "step 3 done: 0 trajectories, 1.5 s",
        "evaluation after step 3 done: sampled, 0 trajectories, 2.0 s",
        "checkpoint of step 3 done: checkpoints/3, 0.2 s",
    ]
