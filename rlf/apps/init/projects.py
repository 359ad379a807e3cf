"""New projects: a folder of files that runs at once, copied from a template; on request over the user's own table."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.files import DATA_SUFFIXES, write_whole
from rlf.core.mistakes import not_utf8
from rlf.core.registry import is_present, load_function, nearest
from rlf.data.files import find_form
from rlf.data.source import read_rows

# Questions about the rows of a table: what `rlf init --data` writes beside the user's own file.
#
# The first column names a row. Rows are split before questions are made, so that no name is in both splits.

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


_TEMPLATES = Path(__file__).with_name("templates")
_SCHEMAS = "apps.schema.schemas:write_schemas"
_COMMON = "common"
"""The folder of what every template has."""
_SHORT = {"cold-start": "data.demonstrations.steps=3 train.steps=5"}
"""Overrides of a short run, of templates that take others than the rest."""
# A run's name too: no leading dot, which would hide the folder, and no character that a shell or URL escapes.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Project:
    """A project that was made."""

    name: str
    folder: Path
    spec: Path
    """Of the run, from the project's folder."""
    files: tuple[Path, ...]
    """Every file, from the project's folder."""
    warnings: tuple[str, ...] = ()
    """What may disappoint in a run of it."""


def projects_beside(folder: Path) -> list[str]:
    """Names of the folders beside a project, and its own, that have specs."""
    return sorted(path.parent.name for path in folder.parent.glob("*/specs") if path.is_dir())


def templates() -> list[str]:
    """Names of the templates, sorted."""
    return sorted(path.name for path in _TEMPLATES.iterdir() if path.is_dir() and path.name != _COMMON)


def new_project(folder: Path, template: str, data: Path | None = None) -> Project:
    """Writes a project into a new or empty folder; the folder's name is the run's.

    Args:
        data: a file with a table for a template over a table, in place of the one that comes with it.

    Raises RlfError for a folder that holds something, a name that no run can have, an unknown template, or a table
    that cannot be read.
    """
    name = folder.absolute().name
    if template not in templates():
        known = f"{nearest(template, templates())} (known: {', '.join(templates())})"
        raise RlfError(f"unknown template {template!r}{known}. Write one of these.")
    if not _NAME.fullmatch(name):
        raise RlfError(f"got the name {name!r}; expected letters, digits, `.`, `_` and `-`. Choose another folder.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RlfError(f"{folder} is there and not empty; a project starts in a new folder. Choose another name.")
    own_table = next((_TEMPLATES / template).glob("data/*.csv"), None)
    if data is not None and not data.is_file():
        read_table(data)  # raises
    if data is not None and own_table is None:
        raise RlfError(f"the template {template!r} has no table that {data} could replace. Write `--template python`.")
    table = read_table(data or own_table) if own_table else None
    values = {"name": name, "short": _SHORT.get(template, "train.steps=5"), **(_table_values(table) if table else {})}
    for source in (_TEMPLATES / _COMMON, _TEMPLATES / template):
        _copy_template(source, folder, values)
    warnings = _write_table(folder / "data", table) if table is not None else ()
    if is_present(_SCHEMAS):
        load_function(_SCHEMAS)(folder / "schema")
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return Project(name, folder, Path("specs") / f"{name}.yaml", tuple(files), warnings)


def _table_values(table: Table) -> dict[str, str]:
    """A template's values about its table, each fit to stand inside double quotes."""
    values = {
        "file": f"{table.path.stem}.csv" if table.path.suffix in MADE_ANEW else table.path.name,
        "table": table.path.stem,
        "key": table.key,
        "columns": ", ".join(table.columns),
        "delimiter": table.delimiter,
        "example": table.rows[0][table.key],
    }
    return {name: json.dumps(value, ensure_ascii=False)[1:-1] for name, value in values.items()}


def _write_table(folder: Path, table: Table) -> tuple[str, ...]:
    """Copies the file as it is, writes its questions beside it, and warns of those that the model cannot answer."""
    folder.mkdir(parents=True, exist_ok=True)
    if table.path.suffix in MADE_ANEW:
        with (folder / f"{table.path.stem}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [table.key, *table.columns])
            writer.writeheader()
            writer.writerows(table.rows)
    else:
        shutil.copyfile(table.path, folder / table.path.name)
    splits = questions_of(table)
    for split, questions in splits.items():
        lines = [json.dumps(question, ensure_ascii=False) + "\n" for question in questions]
        write_whole(folder / f"{split}.jsonl", "".join(lines))
    asked = [question for questions in splits.values() for question in questions]
    uncopied = find_uncopied(asked)
    if not uncopied:
        return ()
    example = f"{uncopied[0]['question']} {uncopied[0]['answer']}"
    share = f"{len(uncopied)} of {len(asked)} questions, e.g. {example!r}"
    return (
        f"{share}: builtin:small copies only a to z, digits, spaces and `.`, `_`, `-`, so it will fail on them. "
        "Leave these rows or columns out, or take another `model.path`.",
    )


def _copy_template(source: Path, folder: Path, values: dict[str, str]) -> None:
    """Copies a template; `dot_` begins a hidden file's name, `__name__` is the run's, and `{{...}}` one of `values`."""
    for path in sorted(source.rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts or path.suffix == ".csv":
            continue
        place = path.relative_to(source).as_posix().replace("__name__", values["name"]).replace("dot_", ".")
        target = folder / place
        text = path.read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace("{{" + name + "}}", value)
        write_whole(target, text)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A spec to start from."""

    name: str
    have: str
    """What one has who takes it."""
    teaches: str
    measured: str
    """With a built-in model, on a CPU."""
    template: str
    """Of `rlf init`."""
    spec: str
    """The shipped spec that it is."""
    page: str
    """Where its figures are."""


RECIPES = (
    Recipe(
        "search",
        "questions with known answers, and a tool that finds them",
        "exact match, no demonstrations",
        "27 to 29 % -> 99 % of 512 held-out questions, three seeds",
        "search",
        "specs/search.yaml",
        "docs/embedded.md",
    ),
    Recipe(
        "own table",
        "a table and a function of your own: `--template python --data FILE`",
        "exact match, no demonstrations",
        "the same model and reward as search; depends on your table",
        "python",
        "specs/search.yaml",
        "docs/tutorials/your-own.md",
    ),
    Recipe(
        "world",
        "a world with a state, judged by how it ends",
        "the world's own score",
        "10 % -> 96 % of 256 held-out tasks in 16 steps",
        "shop",
        "specs/shop.yaml",
        "docs/guides/worlds.md",
    ),
    Recipe(
        "cold start",
        "a model that cannot call a tool yet",
        "demonstrations, then rewards, in one run",
        "0 % -> 92 % of 256 held-out tasks, two seeds; rewards alone stay at 0 %",
        "cold-start",
        "specs/cold_start.yaml",
        "docs/guides/cold-start.md",
    ),
    Recipe(
        "judge",
        "answers that only a reader can judge",
        "a judge's verdict",
        "nothing: it depends on your judge, which `rlf rewards calibrate` measures first",
        "judge",
        "specs/writing_judge.yaml",
        "docs/guides/judges.md",
    ),
)
