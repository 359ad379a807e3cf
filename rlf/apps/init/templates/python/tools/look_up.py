"""The tool of this project: a function with the arguments of tool_specs/look_up.yaml, which returns what is read."""

import csv
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).parents[1] / "data" / "{{file}}"


def look_up(name: str, column: str) -> str:
    """Reads a cell of the row whose first column is `name`, up to case and spaces around it."""
    row = _row_by_key().get(name.strip().lower())
    if row is None:
        return "No row found."
    return row.get(column.strip()) or f"No column {column}."


@cache
def _row_by_key() -> dict[str, dict[str, str]]:
    with _TABLE.open(encoding="utf-8-sig", newline="") as file:
        header, *lines = csv.reader(file, delimiter="{{delimiter}}")
    columns = [column.strip() for column in header]
    rows = [dict(zip(columns, [cell.strip() for cell in line], strict=False)) for line in lines if line]
    return {row[columns[0]].lower(): row for row in reversed(rows)}
