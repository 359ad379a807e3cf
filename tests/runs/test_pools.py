"""Runs whose tasks are drawn by their success so far."""

import pytest

from rlf.core import SpecError
from rlf.engines.local.checkpoint import read_progress
from rlf.lineage.reader import Reader
from rlf.runs.place import open_lineage
from rlf.runs.plans import check_spec
from rlf.runs.start import run

from .conftest import ROOT, SMALL
from .test_runs import Watch

SPEC = ROOT / "specs" / "search.yaml"
# The gate asks for other groups where rewards do not differ, and the sampler chooses these by what it saw.
POOLS = ["+train.sampler=pools", "+train.dynamic_filtering={max_rounds: 2}", "checkpoint.every=1"]
# Each turn that calls is followed by a summary, and a new context that is a row of its own.
POOLS.append("+rollout.context={limit: 20, keep_last: 0, when_full: summarize}")


def test_a_run_draws_from_pools_and_keeps_what_it_drew_for_its_resumption(tmp_path):
    done = run([SPEC], [*SMALL, *POOLS, "train.steps=2"], runs_folder=tmp_path, view=Watch(), command=["rlf"])
    with open_lineage(tmp_path) as store:
        reader = Reader(store)
        shares = reader.steps(done.run_id)[-1].metrics
        played = [reader.trajectory(done.run_id, k=k, step=2).scored.trajectory for k in range(4)]
        assert read_progress(tmp_path / reader.checkpoints(done.run_id)[-1].path).drawn
    assert any(one.forks for one in played)
    assert sum(share for name, share in shares.items() if name.startswith("draws/") and name != "draws/retired") == 1


def test_groups_that_may_be_late_and_a_trainer_with_rows_in_a_file_have_no_pools():
    with pytest.raises(SpecError, match=r"train.sampler: got this with oversample or deadline_s"):
        check_spec([SPEC], ["+train.sampler=pools", "rollout.schedule=clock", "+rollout.oversample=1.5"])
    with pytest.raises(SpecError, match="OpenRLHF's rows are in a file before the first step"):
        check_spec([SPEC], ["+train.sampler=pools", "engine.kind=openrlhf"])
