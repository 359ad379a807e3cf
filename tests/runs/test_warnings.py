"""What is unwise about a run is told before its first step, and kept with it."""

from rlf.lineage.reader import Reader
from rlf.runs.place import open_lineage
from rlf.runs.start import run
from rlf.types import Notice, StepFinished


def test_warnings_come_before_the_first_step_and_are_recorded(small, tmp_path):
    events = []
    overrides = [*small[1], "train.steps=1", "eval.limit=2", "eval.every=null", "rollout.temperature=0.9"]
    outcome = run(small[0], overrides, runs_folder=tmp_path, view=lambda info: events.append, command=["rlf", "run"])
    told = [
        event.text
        for event in events
        if isinstance(event, Notice) and event.level == "warning" and "path" in event.data
    ]
    assert len(told) == 1 and told[0].startswith("override rollout.temperature: got 0.9; ")
    kinds = [type(event) for event in events]
    assert kinds.index(Notice) < kinds.index(StepFinished)
    with open_lineage(tmp_path) as store:
        assert told[0] in [event.text for event in Reader(store).events(outcome.run_id)]
