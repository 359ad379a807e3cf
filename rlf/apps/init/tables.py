"""Questions about the rows of a table: what `rlf init --data` writes beside the user's own file.

The first column names a row. Rows are split before questions are made, so that no name is in both splits.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.files import DATA_SUFFIXES
from rlf.core.mistakes import not_utf8
from rlf.data.files import find_form
from rlf.data.source import read_rows

MADE_ANEW = tuple(suffix for suffix in DATA_SUFFIXES if suffix != ".csv")
"""Suffixes of files of which a CSV file is made, which the project's own tool reads."""
SPLITS = ("train", "heldout")
_HELDOUT_SHARE = 0.25
_LEAST_ROWS = 8
_MOST_QUESTIONS = {"train": 2048, "heldout": 512}
_LONGEST_VALUE = 60
_COPIED = re.compile(r"[A-Za-z0-9 ._-]*")
"""Texts that `builtin:small` copies; of others `benchmarks/small_skills.py` finds almost none right."""
_MAX_CELL_CHARS = 131_072
_SAMPLE_CHARS = 8192


@dataclass(frozen=True, slots=True)
class Table:
    """A file's rows; every row has a name of its own."""

    path: Path
    """A CSV file is copied as it is; of any other one such a file is made."""
    delimiter: str
    key: str
    """The first column."""
    columns: tuple[str, ...]
    """The others."""
    rows: tuple[dict[str, str], ...]


def read_table(path: Path) -> Table:
    """Reads a table; of rows with the same name the first is kept.

    Raises RlfError for a file that cannot be read, or has no two columns or too few rows.
    """
    if not path.is_file():
        raise RlfError(f"{path}: no such file. Write the path of a {', '.join(DATA_SUFFIXES)} file.")
    if path.suffix in MADE_ANEW:
        found = [row.values for row in read_rows(str(path.absolute()), None, "train", None)]
        columns = list(dict.fromkeys(column for row in found for column in row))
        return _make_table(path, ",", columns, [[_as_cell(row.get(column)) for column in columns] for row in found])
    return _read_csv(path)


def _as_cell(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_csv(path: Path) -> Table:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = (
            error.strerror if isinstance(error, OSError) else find_form(path) or not_utf8(path.read_bytes(), "A table")
        )
        raise RlfError(f"{path}: {why}") from error
    try:
        delimiter = csv.Sniffer().sniff(text[:_SAMPLE_CHARS], delimiters=",;\t|").delimiter
    except csv.Error:
        delimiter = ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    csv.field_size_limit(_MAX_CELL_CHARS)  # of the process: other readers set their own
    try:
        header, *rows = [[cell.strip() for cell in cells] for cells in reader] or [[]]
    except csv.Error as error:  # of a cell that is too long, as after a quote without its second one
        raise RlfError(f"{path}:{reader.line_num}: {error}. Look for a quote that is not closed.") from error
    return _make_table(path, delimiter, header, rows)


def _make_table(path: Path, delimiter: str, header: list[str], rows: list[list[str]]) -> Table:
    if {"question", "prompt"} & set(header) and "answer" in header:
        prompt = next(name for name in header if name in ("question", "prompt"))
        raise RlfError(
            f"{path}: holds questions and answers already; --data takes a table that questions are made of. Write "
            f"`data: {{train: {{path: FILE, prompt: {prompt}, answer: answer}}}}` in the spec of a project without it."
        )
    if len(header) < 2 or not all(header) or len(set(header)) < len(header):
        raise RlfError(
            f"{path}:1: got the columns {header}; expected two or more, each with a name of its own. "
            "Write a header line such as `name,city,age`."
        )
    row_by_key: dict[str, dict[str, str]] = {}
    for cells in rows:
        row = dict(zip(header, cells, strict=False))
        if row.get(header[0]):
            row_by_key.setdefault(row[header[0]].lower(), row)
    if len(row_by_key) < _LEAST_ROWS:
        raise RlfError(f"{path}: got {len(row_by_key)} rows with a name; expected {_LEAST_ROWS} or more. Add some.")
    return Table(path, delimiter, header[0], tuple(header[1:]), tuple(row_by_key.values()))


def questions_of(table: Table) -> dict[str, list[dict[str, str]]]:
    """The questions of each split, one for each cell that holds a short value, in a random order."""
    rng = random.Random("table:0")
    rows = rng.sample(table.rows, len(table.rows))
    num_heldout = max(1, round(_HELDOUT_SHARE * len(rows)))
    parts = {"train": rows[num_heldout:], "heldout": rows[:num_heldout]}
    return {split: _make_questions(rng, table, part)[: _MOST_QUESTIONS[split]] for split, part in parts.items()}


def find_uncopied(questions: list[dict[str, str]]) -> list[dict[str, str]]:
    """The questions with a character, in name or answer, that `builtin:small` has not learned to copy."""
    return [row for row in questions if not _COPIED.fullmatch(row["question"].removesuffix("?") + row["answer"])]


def _make_questions(rng: random.Random, table: Table, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    questions = [
        {"question": f"What is the {column} of {row[table.key]}?", "answer": row[column], "column": column}
        for row in rows
        for column in table.columns
        if 0 < len(row.get(column, "")) <= _LONGEST_VALUE
    ]
    rng.shuffle(questions)
    return questions
