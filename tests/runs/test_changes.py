"""A run is resumed with what it was made from, or not without a word: changes are refused, or become nodes."""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rlf.apps.compare.arms import Arm, DifferenceCause, arm_differences, read_arms
from rlf.cli import app
from rlf.core import RlfError, SpecError
from rlf.lineage.graph import read_graph
from rlf.lineage.reader import Reader
from rlf.lineage.records import FileRecord
from rlf.plan import checks
from rlf.runs.changes import InputsChanged
from rlf.runs.place import Places, open_lineage
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.types import Notice, RunStatus, StepFinished

from ..lineage.builders import run_record
from .test_runs import Watch


def resumed(project, watch=None, **options):
    return resume("latest", runs_folder=project / "runs", view=watch or Watch(), command=["rlf", "resume"], **options)


def rlf(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("name", "old", "new", "shown"),
    [
        ("search.py", "answer(query)", "answer('')", ["code search.py", "-    return words.answer(query)"]),
        ("search.py", "import words", "++len('ab')\nimport words", ["+++len('ab')"]),
        ("train.jsonl", "Here 3", "There 3", ["data train.jsonl", "+{", "There 3"]),
    ],
)
def test_a_changed_input_is_refused_with_the_lines_that_changed(name, old, new, shown, project):
    edit(project / name, old, new)
    answer = rlf("resume", "latest", "--runs", project / "runs")
    assert answer.exit_code == 2, answer.output
    assert all(words in answer.stderr for words in ["1 input changed", "→", "--accept-changes", *shown])
    with open_lineage(project / "runs") as store:
        assert Reader(store).get_run("latest").status is RunStatus.INTERRUPTED


def test_a_run_of_before_success_had_to_be_a_share_resumes(project, monkeypatch):
    own = ["rewards=[{kind: python, name: own, callable: 'own.py:own'}]"]
    (project / "own.py").write_text("def own(trajectory):\n    return 2.0 * trajectory.sample_index - 1\n")
    monkeypatch.chdir(project)
    with pytest.raises(SpecError, match="'own' declares no range of its values"):
        run([Path("spec.yaml")], own, runs_folder=Path("runs"), view=Watch(), command=["rlf"])
    with monkeypatch.context() as patch:
        patch.setattr(checks, "CHECKS", [each for each in checks.CHECKS if each is not checks._success_is_a_share])
        made = run([Path("spec.yaml")], own, runs_folder=Path("runs"), view=Watch(interrupt), command=["rlf"])
    assert made.status is RunStatus.INTERRUPTED
    assert resumed(project).status is RunStatus.FINISHED
    with open_lineage(project / "runs") as store:
        assert Reader(store).get_run(made.run_id).status is RunStatus.FINISHED


def interrupt(event):
    if isinstance(event, StepFinished):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("name", ["train.jsonl", "search.py"])
def test_a_file_that_is_missing_in_a_copied_project_is_not_taken_from_the_original(name, project, interrupted):
    (project / name).unlink()
    assert (interrupted / name).is_file()
    with pytest.raises(InputsChanged, match=f"{name}: [0-9a-f]+ → absent"):
        resumed(project)
    with pytest.raises(RlfError, match=name):
        resumed(project, accept_changes=True)


def test_a_runs_folder_that_was_moved_alone_finds_its_project_where_that_is(interrupted, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(interrupted))
    shutil.copytree(interrupted / "runs", tmp_path / "backup" / "runs")
    assert resumed(tmp_path / "backup").status is RunStatus.FINISHED


def test_a_file_outside_the_project_is_no_part_of_a_copy_that_lies_as_deep(tmp_path):
    shared = tmp_path / "shared.yaml"
    shared.touch()
    cwd, copy = tmp_path / "here" / "project", tmp_path / "there" / "backup" / "runs"
    files = (FileRecord("spec", "../../shared.yaml", "0"), FileRecord("data", "train.jsonl", "0"))
    record = run_record(cwd=str(cwd), home=str(cwd / "runs"), files=files)
    places = Places.of(record, SimpleNamespace(base=copy))
    assert places.project is None
    assert places.file("data", "train.jsonl") == cwd / "train.jsonl"


def test_a_changed_package_is_refused_by_its_versions(project, monkeypatch):
    monkeypatch.setattr("rlf.runs.changes.packages", lambda _: {"torch": "9.9"})
    with pytest.raises(InputsChanged, match=r"package torch: 2\.\S+ → 9\.9"):
        resumed(project)


def test_an_accepted_change_is_a_node_from_its_step_and_is_accepted_once(project):
    run_id = edited_and_resumed(project)
    with open_lineage(project / "runs") as store:
        reader = Reader(store)
        graph = read_graph(reader, run_id)
        (change,) = reader.changes(run_id)
    node = graph.node("change:code search.py after step 1")
    assert node is not None and node.sha256 == change.sha256 != change.old_sha256
    assert node in graph.ancestors("step:2") and node not in graph.ancestors("step:1")
    shown = rlf("runs", "show", run_id, "--runs", project / "runs").stdout
    assert f"after step 1: code search.py: {change.old_sha256[:12]}" in " ".join(shown.split())


def test_a_comparison_names_an_accepted_change(project):
    run_id = edited_and_resumed(project)
    with open_lineage(project / "runs") as store:
        member = read_arms(Reader(store), [run_id])[0].members[0]
    before = replace(member, changes=())
    (found,) = arm_differences([Arm("A", "before", (before,)), Arm("B", "after", (member,))])
    assert (found.cause, found.what) == (DifferenceCause.CHANGE, "code search.py after step 1")


def edited_and_resumed(project: Path) -> str:
    edit(project / "search.py", "answer(query)", "answer('')")
    watch = Watch()
    outcome = resumed(project, watch, accept_changes=True)
    assert outcome.status is RunStatus.FINISHED
    assert any(isinstance(event, Notice) and "changed after step 1: code" in event.text for event in watch.events)
    return outcome.run_id


def test_an_edited_spec_is_reported_as_not_used(project):
    edit(project / "spec.yaml", "greedy: false", "greedy: true")
    watch = Watch()
    assert resumed(project, watch).status is RunStatus.FINISHED
    (notice,) = [event for event in watch.events if isinstance(event, Notice) and "spec.yaml" in event.text]
    assert "not used" in notice.text and "runs fork" in notice.text
    with open_lineage(project / "runs") as store:
        assert Reader(store).changes(Reader(store).get_run("latest").record.id) == []
