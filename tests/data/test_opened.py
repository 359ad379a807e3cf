"""Datasets of unchanged files are read once for all checks of them."""

import json
import os
import time
from pathlib import Path

import pytest

import rlf.data
from rlf.core import SpecError
from rlf.core.identity import remember, stamp_file
from rlf.data import load_tasks, open_tasks, recall
from rlf.spec.models import DataSource

pytestmark = pytest.mark.usefixtures("notes")
NUM = 40


@pytest.fixture(autouse=True)
def notes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(rlf.data, "MIN_BYTES", 1)
    monkeypatch.setattr(rlf.core.identity, "_SETTLED_S", 0.0)


@pytest.fixture
def reads(monkeypatch):
    """The paths that were read."""
    found = []
    monkeypatch.setattr(
        rlf.data.tasks, "load_tasks", lambda path, **keys: found.append(path) or load_tasks(path, **keys)
    )
    return found


def write(path, **changed):
    rows = [{"prompt": f"question {number}", "answer": "a", **changed} for number in range(NUM)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DataSource(path=str(path)).model_dump()


def longest(tasks):
    return max(len(task.messages[0].content) for task in tasks)


def test_a_dataset_that_was_sound_is_not_read_again(tmp_path, reads):
    source = write(tmp_path / "rows.jsonl")
    assert [recall(longest, open_tasks(source, ())) for _ in range(3)] == [len("question 10")] * 3
    assert len(open_tasks(source, ())) == len(open_tasks(source, ())[:NUM]) == NUM
    assert reads == [source["path"]]


def test_a_builtin_dataset_is_read_once_too(reads):
    source = DataSource(path="builtin:encyclopedia/heldout", prompt="question").model_dump()
    first, second = (recall(longest, open_tasks(source, ())) for _ in range(2))
    assert first == second == longest(load_tasks(**source))
    assert reads == [source["path"]]


def test_its_rows_are_those_of_the_file(tmp_path):
    source = write(tmp_path / "rows.jsonl")
    expected = load_tasks(**source)
    for _ in range(2):
        opened = open_tasks(source, ())
        assert list(opened) == expected
        assert list(opened[3:20:4]) == expected[3:20:4]
        assert opened[-1] == expected[-1]


def test_a_changed_file_is_read_again_also_one_of_the_same_size_and_time(tmp_path):
    source = write(tmp_path / "rows.jsonl")
    before = Path(source["path"]).stat()
    assert open_tasks(source, ())[0].answer == "a"
    write(tmp_path / "rows.jsonl", answer="b")
    os.utime(source["path"], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Path(source["path"]).stat().st_size == before.st_size
    assert open_tasks(source, ())[0].answer == "b"


def test_other_keys_and_other_tools_are_other_datasets(tmp_path, reads):
    source = write(tmp_path / "rows.jsonl", tools=["look"])
    for keys, declared in ((source, ()), (source | {"tools": "tools"}, ("look",)), (source | {"limit": 3}, ())):
        open_tasks(keys, declared)
    assert len(reads) == 3
    with pytest.raises(SpecError):
        open_tasks(source | {"tools": "tools"}, ("search",))


def test_a_template_file_counts_as_the_rows_do(tmp_path):
    (tmp_path / "ask.jinja").write_text("{{ prompt }}?")
    source = write(tmp_path / "rows.jsonl") | {"template": str(tmp_path / "ask.jinja")}
    assert open_tasks(source, ())[0].messages[0].content == "question 0?"
    (tmp_path / "ask.jinja").write_text("{{ prompt }}!")
    assert open_tasks(source, ())[0].messages[0].content == "question 0!"


def test_what_is_wrong_with_a_dataset_is_reported_each_time(tmp_path):
    source = write(tmp_path / "rows.jsonl", answer="")
    for _ in range(2):
        with pytest.raises(SpecError, match="the row has no answer"):
            open_tasks(source, ())


def test_a_find_about_two_datasets_is_kept_for_these_two(tmp_path):
    train, evaluation = write(tmp_path / "rows.jsonl"), load_tasks(**write(tmp_path / "asked.jsonl"))

    def count_both(one, other):
        calls.append(1)
        return len(one) + len(other)

    calls = []
    for asked in (evaluation, evaluation, evaluation[:3]):
        assert recall(count_both, open_tasks(train, ()), asked) == NUM + len(asked)
    assert len(calls) == 2


def test_tasks_in_memory_are_looked_at_each_time(tmp_path):
    tasks = load_tasks(**write(tmp_path / "rows.jsonl"))
    assert recall(longest, tasks) == len("question 10")
    assert not (tmp_path / "cache").exists()


def test_a_file_that_was_written_just_now_is_not_known_by_its_times(tmp_path, monkeypatch):
    source = write(tmp_path / "rows.jsonl")
    monkeypatch.setattr(rlf.core.identity, "_SETTLED_S", 60.0)
    assert stamp_file(tmp_path / "rows.jsonl") is None
    open_tasks(source, ())
    assert not (tmp_path / "cache").exists()


def test_a_damaged_note_is_found_out_anew(tmp_path):
    assert remember("key", lambda: 1) == 1
    (note,) = (tmp_path / "cache/rlf/checks").iterdir()
    note.write_text("{")
    assert remember("key", lambda: 2) == remember("key", lambda: 3) == 2


def test_old_notes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(rlf.core.identity, "_MAX_NOTES", 4)
    for number in range(12):
        remember(number, lambda: 0)
        time.sleep(0.001)
    assert len(list((tmp_path / "cache/rlf/checks").iterdir())) <= 4
    assert remember(11, lambda: 1) == 0


def test_without_a_folder_for_notes_everything_is_looked_at(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [remember("key", lambda: 0), remember("key", lambda: 1)] == [0, 1]


def test_without_a_home_everything_is_looked_at(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(
        Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory."))
    )
    assert [remember("key", lambda: 0), remember("key", lambda: 1)] == [0, 1]


def test_a_note_of_another_user_is_not_believed(monkeypatch):
    remember("key", lambda: 0)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert remember("key", lambda: 1) == 1


def test_notes_are_for_nobody_else_and_a_full_disk_leaves_no_half_of_one(tmp_path, monkeypatch):
    remember("key", lambda: 0)
    folder = tmp_path / "cache/rlf/checks"
    assert folder.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("No space left on device")))
    assert remember("other", lambda: 0) == 0
    assert len(list(folder.iterdir())) == 1


def test_notes_of_other_code_are_not_believed(monkeypatch):
    remember("key", lambda: 0)
    monkeypatch.setattr(rlf.core.identity, "_code_stamp", lambda: "of another version")
    assert remember("key", lambda: 1) == 1
