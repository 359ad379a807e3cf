"""Everything that ships passes what rlf has to check it; what another file of tests tries is not repeated here.

Specs have no faults and no warnings (`plan/test_shipped_specs.py`), tools pass their tests
(`tools/test_tool_specs.py`), reward files theirs (`cli/test_rewards.py`), build files are right
(`apps/build/test_guide.py`), templates are checked, tried and trained (`cli/test_init.py`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rlf.apps.openrlhf.emit import write_job
from rlf.apps.openrlhf.job import Job
from rlf.apps.rewards.scoring import try_reward_files
from rlf.apps.worlds.worlds import examine_apart
from rlf.plan import compile as compile_plan
from rlf.runs.declared import load_rewards
from rlf.runs.worlds import world_spec
from rlf.spec import load_spec
from rlf.types import Message, Task

REPOSITORY = Path(__file__).parents[1]
SPECS = sorted(path for part in ("", "benchmarks") for path in (REPOSITORY / part / "specs").glob("*.yaml"))
WORLDS = sorted((REPOSITORY / "specs" / "worlds").glob("*.yaml"))
JOBS = [path for path in SPECS if load_spec([path]).spec.engine.kind == "openrlhf"]
OWN_WORLDS = [path for path in SPECS if load_spec([path]).spec.env is not None]
"""Those of `specs/worlds` need packages that no test installs."""


@pytest.mark.parametrize("path", [*SPECS, *WORLDS], ids=lambda path: path.stem)
def test_the_terms_of_a_shipped_spec_pass_their_trials(path: Path) -> None:
    (file,) = load_rewards([path])
    tried = replace(file, terms=tuple(term for term in file.terms if term.kind != "judge"))  # a judge is a model
    trials = asyncio.run(try_reward_files([tried]))
    assert trials
    assert [(trial.term, trial.what, trial.reason) for trial in trials if not trial.ok] == []


@pytest.mark.parametrize("path", OWN_WORLDS, ids=lambda path: path.stem)
@pytest.mark.parametrize("attack", [False, True])
def test_a_shipped_world_holds_what_is_promised_of_worlds(path: Path, attack: bool) -> None:
    page = examine_apart(world_spec([path], []), 2, attack=attack, tolerance=0.05, limit_s=900)
    assert page.is_sound, page.to_json()


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_shipped_spec_of_openrlhf_is_written_as_a_job(path: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, tmp_path)
    few = ["train.steps=2", "train.warmup_steps=0", "checkpoint.every=2"]
    few += ["eval.every=2"] if load_spec([path]).spec.data.eval else []
    write_job(compile_plan(load_spec([path], few)), [Task("q", (Message("user", "Who?"),), "Ann")], [], job)
    assert job.train.is_file()
