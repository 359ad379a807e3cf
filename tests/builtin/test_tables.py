"""Tables of a user's own."""

import csv
import sys
from pathlib import Path

import pytest

from rlf.apps.init.projects import read_table
from rlf.core import RlfError

NAMES = [f"person{number}" for number in range(8)]


def test_a_cell_may_hold_line_breaks_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    note = "first\u2028second\x85third"
    rows = [f'{name},"{note}","two\nlines"' for name in NAMES]
    path.write_text("\n".join(["name,note,address", *rows]) + "\n", encoding="utf-8")
    table = read_table(path)
    assert [row["name"] for row in table.rows] == NAMES
    assert {(row["note"], row["address"]) for row in table.rows} == {(note, "two\nlines")}


def test_a_quote_that_is_not_closed_is_reported_with_the_last_line_of_its_cell(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    lines = [f"{name},{'x' * 20_000}" for name in NAMES]
    lines[0] = f'{NAMES[0]},"{"x" * 20_000}'
    path.write_text("\n".join(["name,note", *lines]), encoding="utf-8")
    csv.field_size_limit(sys.maxsize)  # as rows of data are read in the same process
    with pytest.raises(RlfError, match=r"people\.csv:8: field larger .*\. Look for a quote that is not closed"):
        read_table(path)
