"""The current folder is a small project."""

import pytest

from rlf.builtin.names import builtin_path

from .project import write_project


@pytest.fixture(scope="session")
def short_encyclopedia(tmp_path_factory):
    """Every eighth row of the built-in training data, and its shortest and longest rows, in a folder of its own."""
    rows = builtin_path("encyclopedia/train").read_text(encoding="utf-8").splitlines(keepends=True)
    by_length = sorted(rows, key=len)
    short = tmp_path_factory.mktemp("encyclopedia") / "train.jsonl"
    short.write_text("".join(dict.fromkeys([*rows[::8], *by_length[:20], *by_length[-20:]])), encoding="utf-8")
    return short


@pytest.fixture
def few_rows(short_encyclopedia, monkeypatch):
    """A check of a spec on the built-in training data reads few rows of it: what it finds is the same."""
    files = {"encyclopedia/train": short_encyclopedia}
    monkeypatch.setattr("rlf.data.source.builtin_path", lambda name: files.get(name) or builtin_path(name))
    monkeypatch.setenv("XDG_CACHE_HOME", str(short_encyclopedia.parent))  # notes of few rows are true of few alone


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes the project with changes and goes into its folder; the path of its run spec, as a user would write it."""
    monkeypatch.chdir(tmp_path)

    def write(changes=None):
        return write_project(tmp_path, changes).relative_to(tmp_path)

    return write
