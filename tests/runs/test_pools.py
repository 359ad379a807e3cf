"""Runs whose tasks are drawn by their success so far."""

import signal
import time

import pytest

from rlf.core import SpecError
from rlf.engines.local.checkpoint import read_progress
from rlf.lineage import Reader
from rlf.runs.place import open_lineage
from rlf.runs.plans import check_spec
from rlf.runs.start import resume, run

from .conftest import ROOT, SMALL
from .test_demonstrations import weights_and_numbers
from .test_runs import Watch, started

SPEC = ROOT / "specs" / "search.yaml"
# The gate asks for other groups where rewards do not differ, and the sampler chooses these by what it saw.
POOLS = ["+train.sampler=pools", "+train.dynamic_filtering={max_rounds: 2}", "checkpoint.every=1"]
# Each turn after the first begins a new context, a row of its own.
POOLS.append("+rollout.context={limit: 20, keep_last: 0}")


def test_a_killed_run_resumes_with_the_same_tasks_and_the_same_numbers(tmp_path):
    whole = run([SPEC], [*SMALL, *POOLS], runs_folder=tmp_path / "whole", view=Watch(), command=["rlf"])
    with started(tmp_path / "killed", "step 2", *POOLS) as process:
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    resumed = resume("latest", runs_folder=tmp_path / "killed", view=Watch(), command=["rlf", "resume"])
    assert weights_and_numbers(tmp_path / "killed", resumed.run_id) == weights_and_numbers(
        tmp_path / "whole", whole.run_id
    )
    found = []
    for folder, done in ((tmp_path / "whole", whole), (tmp_path / "killed", resumed)):
        with open_lineage(folder) as store:
            reader = Reader(store)
            tasks = [(item.step, item.task_id) for item in reader.trajectories(done.run_id) if item.step]
            found.append((sorted(tasks), read_progress(folder / reader.checkpoints(done.run_id)[-1].path).drawn))
            shares = reader.steps(done.run_id)[-1].metrics
            played = [reader.trajectory(done.run_id, k=k, step=2).scored.trajectory for k in range(4)]
            assert any(one.forks for one in played)
    assert found[0] == found[1] and found[0][1]
    assert sum(share for name, share in shares.items() if name.startswith("draws/") and name != "draws/retired") == 1


def test_groups_that_may_be_late_and_a_trainer_with_rows_in_a_file_have_no_pools():
    with pytest.raises(SpecError, match=r"train.sampler: got this with oversample or deadline_s"):
        check_spec([SPEC], ["+train.sampler=pools", "rollout.schedule=clock", "+rollout.oversample=1.5"])
    with pytest.raises(SpecError, match="OpenRLHF's rows are in a file before the first step"):
        check_spec([SPEC], ["+train.sampler=pools", "engine.kind=openrlhf"])
