"""New projects: a folder of files that runs at once, copied from a template; on request over the user's own table."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from rlf.apps.init.tables import MADE_ANEW, Table, find_uncopied, questions_of, read_table
from rlf.core.errors import RlfError
from rlf.core.files import write_whole
from rlf.core.registry import is_present, load_function, nearest

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
