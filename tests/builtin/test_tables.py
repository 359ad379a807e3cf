"""Tables of a user's own."""

from pathlib import Path

from rlf.builtin.tables import read_table

NAMES = [f"person{number}" for number in range(8)]


def test_a_cell_may_hold_line_breaks_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    note = "first\u2028second\x85third"
    rows = [f'{name},"{note}","two\nlines"' for name in NAMES]
    path.write_text("\n".join(["name,note,address", *rows]) + "\n", encoding="utf-8")
    table = read_table(path)
    assert [row["name"] for row in table.rows] == NAMES
    assert {(row["note"], row["address"]) for row in table.rows} == {(note, "two\nlines")}
