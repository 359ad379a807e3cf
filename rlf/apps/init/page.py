"""What the page shows and does of projects, each in a fork: plain values in, the JSON of commands out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlf.apps.init.projects import RECIPES, Project, Recipe, new_project, projects_beside, templates


@dataclass(frozen=True, slots=True)
class Projects:
    """The project of a page, those beside it, the templates of new ones, and what they are for."""

    project: str
    beside: tuple[str, ...]
    templates: tuple[str, ...]
    recipes: tuple[Recipe, ...]


def list_projects(folder: str) -> Projects:
    """This project, those beside it, and the templates of new ones."""
    return Projects(folder, tuple(projects_beside(Path(folder))), tuple(templates()), RECIPES)


def make_project(folder: str, template: str) -> Project:
    """`rlf init`: makes an empty or new folder a project."""
    return new_project(Path(folder), template)


TASKS = (list_projects, make_project)
