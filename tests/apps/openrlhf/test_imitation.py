"""OpenRLHF's own supervised trainer on this CPU, killed and resumed: what it learns, and what the lineage has."""

from __future__ import annotations

import os
import time

from rlf import load_run
from rlf.engines.saved_model import load_saved

from ...processes import Process
from .conftest import SPECS
from .test_rehearsal import call_there, left_over, wait_until  # noqa: F401  # a fixture
from .test_supervised import IMITATES, needs_environment

ASKED = [*IMITATES, "engine={kind: openrlhf}", "train.steps=6", "eval.every=2", "checkpoint.every=2"]


@needs_environment
def test_a_run_that_imitates_survives_kill_9_and_lowers_the_loss_of_what_it_never_saw(tmp_path, left_over):  # noqa: F811
    runs, env = tmp_path / "runs", dict(os.environ)
    asked = ("run", str(SPECS / "cold_start.yaml"), *ASKED, "--runs", str(runs))
    with Process(call_there, *asked, env=env) as job:
        try:
            wait_until(lambda: list(runs.glob("*/job/ckpt/_actor/global_step2/metric.json")), job)
            wait_until(lambda: load_run(runs_folder=runs).steps(), job)
        finally:
            job.kill()
    deadline = time.monotonic() + 60
    while left_over() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_over() == [], "its processes end with it"

    with Process(call_there, "resume", "latest", "--runs", str(runs), env=env) as job:
        words = job.communicate(timeout=600)
    assert job.returncode == 0, words
    run = load_run(runs_folder=runs)
    steps = run.steps()
    assert [step.step for step in steps] == [1, 2, 3, 4, 5, 6]
    drawn = [item.trajectory.id for step in steps for item in run.scored(step=step.step)]
    assert sorted(drawn, key=lambda name: int(name.split("/")[1])) == [f"demonstration/{at}" for at in range(192)]
    losses = [step.metrics["loss/policy"] for step in steps if "loss/policy" in step.metrics]
    assert losses == sorted(losses, reverse=True) and len(losses) >= 5  # of one its line may not have come
    heldout = [step.metrics["loss/heldout"] for step in steps if "loss/heldout" in step.metrics]
    assert heldout[-1] < heldout[0] < 10 and heldout[-1] < losses[0] / 2
    assert (runs / run.id / "job" / "logs" / "attempt-2.log").read_text().count("Global step 3:") == 1
    assert load_saved(runs / run.id / "job" / "model") is not None
