"""The current folder is a small project."""

import pytest

from .project import write_project


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes the project with changes and goes into its folder; the path of its run spec, as a user would write it."""
    monkeypatch.chdir(tmp_path)

    def write(changes=None):
        return write_project(tmp_path, changes).relative_to(tmp_path)

    return write
