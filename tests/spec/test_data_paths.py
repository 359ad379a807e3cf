"""What has a suffix or lies in an existing folder is a file; the Hub is asked for nothing else, and once."""

import os
from pathlib import Path

import pytest

from rlf.core import SpecError
from rlf.data import load_tasks
from rlf.spec import check_inputs, load_spec

from .project import TOOL

ROWS = {"data/people.csv": "question,answer\nq,a\n", "data/train.jsonl": '{"question": "q", "answer": "a"}\n'}


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("the Hub is asked")

    monkeypatch.setattr("rlf.data.tables.read_hub", refuse)


@pytest.mark.parametrize(
    ("written", "suggestion"),
    [
        ("../data/people.cvs", "; did you mean ../data/people.csv?"),
        ("../data/people", "; did you mean ../data/people.csv?"),
        ("data/people.csv", "; did you mean ../data/people.csv?"),
        ("data/people.cvs", "; did you mean ../data/people.csv?"),
        ("data/train", "; did you mean ../data/train.jsonl?"),
        ("train.jsonl", "; did you mean ../data/train.jsonl?"),
        ("people.tsv", "; did you mean ../data/people.csv?"),
        ("nothing_like_it.parquet", "."),
        ("some/folder/deep", "."),
    ],
)
def test_a_missing_file_is_named_with_the_one_that_is_meant(project, written, suggestion):
    base = project(ROWS).read_text()
    run = project({**ROWS, "specs/run.yaml": base.replace("builtin:encyclopedia/train", written)})
    (fault,) = check_inputs(load_spec([run]))
    assert f": no such file{suggestion} Paths start at the spec's folder, specs." in fault.message


def test_an_override_starts_at_the_current_folder(project):
    (fault,) = check_inputs(load_spec([project(ROWS)], ["data.train.path=data/people.cvs"]))
    assert "did you mean data/people.csv? Paths start at the current folder." in fault.message


@pytest.mark.parametrize("address", ["http://host/train.jsonl", "s3://bucket/train", "file:///train.csv"])
def test_an_address_is_no_data_and_is_named_as_it_was_written(project, address):
    with pytest.raises(SpecError, match=f'got "{address}", an address; data is read from files'):
        load_spec([project(ROWS)], [f"data.train.path={address}"])


@pytest.mark.parametrize("name", ["org/set", "org/set-v1.5", "gsm8k"])
def test_other_names_are_ids_of_the_hub(project, name):
    with pytest.raises(AssertionError, match="the Hub is asked"):
        check_inputs(load_spec([project(ROWS)], [f"data.train.path={name}"]))


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nobody_here/has_this", "the Hugging Face Hub cannot be reached, and 'nobody_here/has_this' is not in this")],
)
def test_a_hub_that_cannot_be_reached_is_asked_once_and_told_in_one_line(name, reason, monkeypatch):
    asked = []

    def unreachable(self, dataset, **_options):
        asked.append(dataset)
        raise ConnectionError("no route")

    def anything_else(*_args, **_options):
        raise AssertionError("another request is made")

    monkeypatch.undo()
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
    monkeypatch.setattr("huggingface_hub.utils._http.http_backoff", anything_else)
    with pytest.raises(SpecError) as caught:
        load_tasks(name)
    (fault,) = caught.value.faults
    assert reason in fault.message
    assert "\n" not in str(fault)
    assert asked == [name]


def test_a_missing_file_of_a_tool_is_named_with_the_one_that_is_meant(project):
    tool = TOOL + "files: [../data/people.cvs, ../data, ../data/train.jsonl]\n"
    faults = check_inputs(load_spec([project({**ROWS, "tool_specs/look.yaml": tool})]))
    about = {fault.path: fault.message for fault in faults if "files[" in fault.path}
    assert about.keys() == {"files[0]", "files[1]"}
    assert "no such file; did you mean ../data/people.csv?" in about["files[0]"]
    assert "is a folder. Name the files in it." in about["files[1]"]


@pytest.mark.parametrize(
    ("given", "meant"), [("lr=1e-4", "train.learning_rate="), ("batch_size=4", "Write train.prompts_per_step")]
)
def test_a_key_of_other_libraries_at_the_top_is_answered_with_ours(project, given, meant):
    with pytest.raises(SpecError, match=meant):
        load_spec([project(ROWS)], [given])


def test_what_would_be_waited_for_is_a_fault_and_never_opened(project, tmp_path):
    pipe, code, model = tmp_path / "pipe.jsonl", tmp_path / "code.py", tmp_path / "model"
    model.mkdir()
    for path in (pipe, code, model / "config.json"):
        os.mkfifo(path)
    term = f"rewards=[{{kind: python, name: r, callable: '{code}:f', range: [0, 1]}}]"
    overrides = [f"data.train.path={pipe}", "data.eval.path=/dev/zero", f"model.path={model}", term]
    faults = check_inputs(load_spec([project()], [*overrides, f"tools[0].files=[{pipe}]"]))
    waited = [fault.path for fault in faults if "a pipe, a socket or a device" in fault.message]
    assert sorted(waited) == ["data.eval.path", "data.train.path", "model.path", "tools[0].files[0]"]
    assert [fault.path for fault in faults if f"no file {code}" in fault.message] == ["rewards[0]"]
    with pytest.raises(SpecError, match="a pipe, a socket or a device"):
        load_spec([pipe])


def test_what_the_user_may_not_read_is_a_fault_and_no_traceback(project, monkeypatch):
    look = Path.stat

    def refuse(path, **keys):
        if "private" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **keys)

    monkeypatch.setattr(Path, "stat", refuse)
    overrides = ["data.train.path=/private/x.jsonl", "model.path=/private/model", "tools[0].files=[/private/a.txt]"]
    faults = check_inputs(load_spec([project()], overrides))
    assert [fault.path for fault in faults if "you have no permission" in fault.message] == [
        "data.train.path",
        "model.path",
        "tools[0].files[0]",
    ]
