"""Sweeps end to end: members checked together, run one by one, resumed."""

import signal
from types import SimpleNamespace
from typing import ClassVar

import pytest

from rlf.apps.sweep import axes as members
from rlf.apps.sweep.axes import check_members
from rlf.apps.sweep.sweep import Watcher, resume_sweep, run_sweep
from rlf.cli.resume import names_sweep
from rlf.core import RlfError, SpecError
from rlf.data import tasks
from rlf.data.tasks import load_tasks
from rlf.lineage.reader import Reader
from rlf.reports.sweep import read_sweep
from rlf.runs import provenance
from rlf.runs.changes import InputsChanged
from rlf.runs.place import open_lineage
from rlf.types import RunStatus, StepFinished

from ...warm import COMMON, warm_python

TINY = ["train.prompts_per_step=1", "rollout.num_generations=4", "eval.limit=2", "eval.greedy=false"]


class Watching:
    """Keeps what it is told, and may do something at an event."""

    def __init__(self, at=lambda event: None):
        self.begun, self.ended, self.at = [], [], at

    @property
    def watcher(self):
        return Watcher(lambda info: self.at, self.begun.append, lambda member, outcome: self.ended.append(outcome))


def start(small, folder, members, watching=None, overrides=("train.steps=1",), at_once=1):
    watcher = (watching or Watching()).watcher
    overrides = [*TINY, *overrides]
    given = {"watcher": watcher, "command": ["rlf", "run", "-m"], "at_once": at_once}
    return run_sweep(small[0], overrides, members, runs_folder=folder, **given)


def runs_of(folder):
    with open_lineage(folder) as store:
        return Reader(store).list_runs()


@pytest.fixture
def warm(monkeypatch):
    """Members side by side are forked from what has imported torch."""
    monkeypatch.setattr(members, "sys", SimpleNamespace(executable=warm_python(*COMMON)))


@pytest.fixture(scope="module")
def spec():
    from tests.runs.conftest import ROOT

    return [ROOT / "specs" / "search.yaml"], []


def test_each_member_is_a_run_whose_parent_is_the_sweep(spec, tmp_path):
    watching = Watching()
    outcome = start(spec, tmp_path, [("seed=0",), ("seed=1",)], watching)
    assert outcome.status is RunStatus.FINISHED
    second, first, sweep = runs_of(tmp_path)
    assert [run.record.parent_id for run in (first, second, sweep)] == [outcome.run_id, outcome.run_id, None]
    assert (first.record.seed, second.record.seed) == (0, 1)
    assert first.record.command.endswith("train.steps=1 seed=0")
    assert (sweep.record.engine, sweep.status, sweep.last_step) == ("sweep", RunStatus.FINISHED, 2)
    assert [member.overrides for member in watching.begun] == [("seed=0",), ("seed=1",)]
    with open_lineage(tmp_path) as store:
        report = read_sweep(Reader(store), outcome.run_id)
    assert [(row.run_id, row.step) for row in report.rows] == [(first.record.id, 1), (second.record.id, 1)]
    assert names_sweep(outcome.run_id, tmp_path) and not names_sweep(first.record.id, tmp_path)
    with pytest.raises(RlfError, match="finished already"):
        resume_sweep(outcome.run_id, runs_folder=tmp_path, watcher=watching.watcher, command=["rlf"])


def figures_of(folder):
    """What runs measured, without what depends on the machine."""
    with open_lineage(folder) as store:
        reader = Reader(store)
        runs = [run for run in reader.list_runs() if run.record.engine != "sweep"]
        kept = ("reward", "success", "policy", "loss")
        return {
            run.record.command.split()[-1]: [
                [step.step, {name: value for name, value in step.metrics.items() if name.startswith(kept)}]
                for step in [*reader.steps(run.record.id), *reader.evaluations(run.record.id)]
            ]
            for run in runs
        }


@pytest.mark.usefixtures("warm")
def test_members_side_by_side_have_the_numbers_of_those_one_after_the_other(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(members.stops, "usable_cores", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    watching = Watching()
    seeds = [("seed=0",), ("seed=1",)]
    beside = start(spec, tmp_path / "beside", seeds, watching, at_once=2)
    assert (beside.status, [member.overrides for member in beside.members]) == (RunStatus.FINISHED, seeds)
    assert len(watching.begun) == len(watching.ended) == 2
    assert start(spec, tmp_path / "after", seeds).status is RunStatus.FINISHED
    assert figures_of(tmp_path / "beside") == figures_of(tmp_path / "after") != {}
    assert {run.record.parent_id for run in runs_of(tmp_path / "beside")} == {beside.run_id, None}


def test_more_members_at_once_than_places_are_refused(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(members.stops, "usable_cores", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RlfError, match="got 3; expected at most 2: 2 cores are here"):
        start(spec, tmp_path, [("seed=0",), ("seed=1",)], at_once=3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7,9")
    with pytest.raises(RlfError, match="got 4; expected at most 3: 3 GPUs are here"):
        start(spec, tmp_path, [("seed=0",), ("seed=1",)], at_once=4)
    assert list(tmp_path.iterdir()) == []


class Spawned:
    """A process that ends with its number once it is asked a second time; SIGINT ends it with 130."""

    all: ClassVar[list] = []

    def __init__(self, command, env, **others):
        self.number, self.gpu, self.cores = int(command[5]), env.get("CUDA_VISIBLE_DEVICES"), command[7:]
        self.asked, self.signals = 0, []
        self.all.append(self)

    def poll(self):
        self.asked += 1
        return self.number if self.asked > 1 and not self.signals else None

    def send_signal(self, number):
        self.signals.append(number)

    def wait(self):
        return 130


@pytest.fixture
def spawned(monkeypatch):
    monkeypatch.setattr(Spawned, "all", [])
    monkeypatch.setattr(members.subprocess, "Popen", Spawned)
    monkeypatch.setattr(members, "_LOOK_S", 0)
    return Spawned.all


def test_no_more_members_run_than_wanted_and_each_has_a_gpu_and_cores_of_its_own(spawned, tmp_path, monkeypatch):
    monkeypatch.setattr(members.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 4}, raising=False)
    alive, most = {}, 0
    for number, code in members.run_members("s", [1, 2, 3, 4], 2, ["4", "7"], tmp_path):
        if code is None:
            alive[number] = spawned[-1]
            assert len({child.gpu for child in alive.values()}) == len(alive)
            cores = [core for child in alive.values() for core in child.cores]
            assert cores and len(cores) == len(set(cores))
        else:
            assert code == number and alive.pop(number)
        most = max(most, len(alive))
    assert most == 2 and [child.number for child in spawned] == [1, 2, 3, 4]


def test_members_that_run_when_the_caller_leaves_are_interrupted(spawned, tmp_path):
    running = members.run_members("s", [1, 2, 3], 2, [], tmp_path)
    next(running), next(running)
    running.close()
    assert [child.signals for child in spawned] == [[signal.SIGINT], [signal.SIGINT]]


def test_every_member_is_checked_before_the_first_starts(spec, tmp_path):
    with pytest.raises(SpecError) as caught:
        start(spec, tmp_path / "runs", [("seed=0",), ("seed=-1",), (f"seed={2**63}",)], overrides=["train.steps=0"])
    assert str(caught.value).split("\n") == [
        "override seed: with seed=-1: got -1; expected a number of at least 0. Write `seed: 0`.",
        f"override seed: with seed={2**63}: got {2**63}; "
        f"expected a number of at most {2**63 - 1}. Write e.g. `seed: 0`.",
        "override train.steps: got 0; expected a number of at least 1. Write e.g. `steps: 100`.",
    ]
    assert not (tmp_path / "runs").exists()


def test_two_members_that_are_the_same_run_are_refused(spec, tmp_path):
    with pytest.raises(SpecError, match=r"sweep: seed=0 and seed=00 give the same results\. Remove one of them\."):
        start(spec, tmp_path, [("seed=0",), ("seed=00",)])


def from_an_edited_checkout(monkeypatch, patch="+edited"):
    """Has rlf run from a checkout that differs from its commit."""
    answers = {"rev-parse": "0" * 12, "status": " M rlf/x.py", "diff": patch, "ls-files": ""}
    monkeypatch.setattr(provenance, "_run_git", lambda command, *_: answers[command])


def test_a_member_that_fails_stops_no_other_and_is_resumed(spec, tmp_path, monkeypatch):
    from_an_edited_checkout(monkeypatch)
    failing = [True]

    def fail(event):
        if failing and isinstance(event, StepFinished):
            failing.clear()
            raise RlfError("the disk is full")

    watching = Watching(fail)
    outcome = start(spec, tmp_path, [("seed=0",), ("seed=1",)], watching)
    assert outcome.status is RunStatus.FAILED
    assert [member.status for member in outcome.members] == [RunStatus.FAILED, RunStatus.FINISHED]
    assert outcome.members[0].error == "the disk is full"
    assert [run.status for run in runs_of(tmp_path)] == [RunStatus.FINISHED, RunStatus.FAILED, RunStatus.FAILED]
    assert runs_of(tmp_path)[-1].error == "1 of 2 runs failed"
    again = Watching()
    with monkeypatch.context() as edited, pytest.raises(InputsChanged, match=r"--accept-changes`\.$") as refused:
        from_an_edited_checkout(edited, "+edited again")
        resume_sweep(outcome.run_id, runs_folder=tmp_path, watcher=again.watcher, command=["rlf", "resume"])
    assert "fork" not in str(refused.value), "a sweep has no checkpoints"
    resumed = resume_sweep(outcome.run_id, runs_folder=tmp_path, watcher=again.watcher, command=["rlf", "resume"])
    assert resumed.status is RunStatus.FINISHED and [member.number for member in again.begun] == [1]
    assert {run.status for run in runs_of(tmp_path)} == {RunStatus.FINISHED} and len(runs_of(tmp_path)) == 3


@pytest.mark.usefixtures("warm")
def test_an_interrupt_stops_the_sweep_and_resume_runs_what_is_left_side_by_side(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(members.stops, "usable_cores", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def interrupt(event):
        if isinstance(event, StepFinished) and event.step == 1:
            signal.raise_signal(signal.SIGINT)

    watching = Watching(interrupt)
    outcome = start(spec, tmp_path, [("seed=0",), ("seed=1",)], watching, overrides=["train.steps=2"])
    assert (outcome.status, len(outcome.members)) == (RunStatus.INTERRUPTED, 1)
    assert len(runs_of(tmp_path)) == 2
    again = Watching()
    given = {"watcher": again.watcher, "command": ["rlf", "resume"]}
    resumed = resume_sweep(outcome.run_id, runs_folder=tmp_path, at_once=2, **given)
    assert resumed.status is RunStatus.FINISHED
    assert [member.number for member in again.begun] == [1, 2]
    second, first, sweep = runs_of(tmp_path)
    assert (first.last_step, second.last_step, second.record.parent_id) == (2, 2, sweep.record.id)


def test_members_with_the_same_data_read_it_once(spec, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read = []
    monkeypatch.setattr(tasks, "load_tasks", lambda path, **keys: read.append(path) or load_tasks(path, **keys))
    checked = check_members(spec[0], [], [("seed=1",), ("seed=2",), ("seed=3",)])
    assert len(checked) == 3
    assert len(read) == len(set(read)) == 2
