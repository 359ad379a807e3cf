"""New projects: a folder of files that runs at once, copied from a template."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.registry import nearest
from rlf.spec.meaning.schema import write_schemas

_TEMPLATES = Path(__file__).parents[1] / "builtin" / "templates"
_COMMON = "common"
"""The folder of what every template has."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Project:
    """What was made."""

    name: str
    folder: Path
    spec: Path
    """Of the run, from the project's folder."""
    files: tuple[Path, ...]
    """Every file, from the project's folder."""


def templates() -> list[str]:
    """Names of the templates, sorted."""
    return sorted(path.name for path in _TEMPLATES.iterdir() if path.is_dir() and path.name != _COMMON)


def new_project(folder: Path, template: str) -> Project:
    """Writes a project into a new or empty folder; the folder's name is the run's.

    Raises RlfError for a folder that holds something, a name that no run can have, or an unknown template.
    """
    name = folder.absolute().name
    if template not in templates():
        known = f"{nearest(template, templates())} (known: {', '.join(templates())})"
        raise RlfError(f"unknown template {template!r}{known}. Write one of these.")
    if not _NAME.fullmatch(name):
        raise RlfError(f"got the name {name!r}; expected letters, digits, `.`, `_` and `-`. Choose another folder.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RlfError(f"{folder} is there and not empty; a project starts in a new folder. Choose another name.")
    for source in (_TEMPLATES / _COMMON, _TEMPLATES / template):
        _copy(source, folder, name)
    write_schemas(folder / "schema")
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return Project(name, folder, Path("specs") / f"{name}.yaml", tuple(files))


def _copy(source: Path, folder: Path, name: str) -> None:
    """Copies a template; `dot_` begins a hidden file's name, `__name__` and `{{name}}` stand for the run's."""
    for path in sorted(source.rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        place = path.relative_to(source).as_posix().replace("__name__", name).replace("dot_", ".")
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text(encoding="utf-8").replace("{{name}}", name), encoding="utf-8")
