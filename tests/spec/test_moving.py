"""The pages for those who come from other libraries name keys that a spec has."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = "".join((ROOT / f"docs/reference/{name}.md").read_text(encoding="utf-8") for name in ("spec", "metrics"))
KEY = re.compile(r"`((?:train|rollout|data|model|eval|engine|checkpoint|chat)\.[a-z_.]+)(?::[^`]*)?`")


@pytest.mark.parametrize("page", ["from-trl", "from-verl", "from-other-libraries"])
def test_every_key_on_the_right_is_one_of_the_reference(page):
    text = (ROOT / f"docs/tutorials/{page}.md").read_text(encoding="utf-8")
    cells = [line.split("|")[2] for line in text.splitlines() if line.startswith("| ")]
    keys = {key for cell in cells for key in KEY.findall(cell)}
    missing = {key for key in keys if f"`{key}`" not in REFERENCE and f"`{key.rpartition('.')[2]}`" not in REFERENCE}
    assert keys and missing == set()


@pytest.mark.parametrize("page", ["from-trl", "from-verl"])
def test_no_cell_is_blank_and_a_missing_counterpart_says_why_or_what_to_do(page):
    text = (ROOT / f"docs/tutorials/{page}.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) > 30 and all(len(row) == 2 and all(row) for row in rows)
    assert [
        row for row in rows if row[1].startswith("no counterpart") and not row[1].startswith("no counterpart: ")
    ] == []
