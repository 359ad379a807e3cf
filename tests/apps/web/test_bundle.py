"""A run as a folder of pages that any browser shows without a server."""

from __future__ import annotations

import json
import re

import pytest

from rlf.apps.web.bundles import write_bundle
from rlf.core.errors import RlfError
from rlf.runs.place import open_reader

from ...reports.synthetic import run_record


def test_every_page_of_a_bundle_loads_nothing_and_every_link_leads_to_a_file(runs_folder, tmp_path):
    with open_reader(runs_folder) as reader:
        found = write_bundle(reader, "latest", tmp_path / "shared", 500)
        with pytest.raises(RlfError):
            write_bundle(reader, "latest", tmp_path / "shared", 500)
    pages = sorted((tmp_path / "shared").rglob("*.html"))
    assert len(pages) == found.num_trajectories + 2 > 10
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", text) and "\x1b" not in text and "\u202e" not in text
        for link in re.findall(r"href=\"([^\"#]+)", text):
            assert (page.parent / link).is_file(), link
    assert json.loads((tmp_path / "shared/data/run.json").read_text())["run"]["record"]["run_id"] == run_record().id


def test_a_limit_takes_the_latest(runs_folder, tmp_path):
    with open_reader(runs_folder) as reader:
        found = write_bundle(reader, "latest", tmp_path / "shared", 3)
    assert found.num_trajectories == 3
    assert all("-2-" in page.name for page in (tmp_path / "shared/t").iterdir())
