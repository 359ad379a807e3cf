"""An open store in a fresh folder, with one run in it."""

import shutil

import pytest

from rlf.lineage import migrate
from rlf.lineage.reader import Reader
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store

from .builders import run_record


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "rlf.db"


@pytest.fixture
def store(path):
    with open_store(path) as opened:
        yield opened


@pytest.fixture
def run_id(store):
    start_run(store, run_record("20260101-000000-aaaa"))
    return "20260101-000000-aaaa"


@pytest.fixture
def reader(store):
    return Reader(store)


_NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade():
    op.add_column("runs", sa.Column("mood", sa.Text(), nullable=True))
    op.execute("UPDATE runs SET mood = 'calm'")
"""


@pytest.fixture
def next_version(tmp_path_factory, monkeypatch):
    """Makes this process that of a next version of rlf, whose runs have a mood."""

    def begin():
        folder = tmp_path_factory.mktemp("next") / "migrations"
        shutil.copytree(migrate._MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "versions" / "v0010_moods.py").write_text(_NEXT)
        monkeypatch.setattr(migrate, "_MIGRATIONS", folder)
        monkeypatch.setattr(migrate, "HEAD", "0010")

    return begin
