"""The names of tools and questions that the parts of a build use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from rlf.builder.kind import Part
from rlf.builder.task import Task
from rlf.rewards.normalization import normalize


class Register:
    """Tools and questions of the parts so far."""

    def __init__(self) -> None:
        self._codes: dict[str, str] = {}
        self._questions: set[str] = set()

    def add(self, part: Part) -> None:
        """Takes a part's names and questions."""
        self._codes.update(part.codes)
        self._questions.update(normalize(task.question) for task in part.tasks)

    def admitted(self, part: Part) -> Part:
        """The part with unused names, without tasks whose question another part has."""
        if any(normalize(task.question) in self._questions for task in part.tasks):
            dropped = {**part.dropped, "duplicate: the question is there already": len(part.tasks)}
            return Part(part.name, (), (), {}, {}, dropped, spent=part.spent)
        names: dict[str, str] = {}
        for name, code in part.codes.items():
            if self._codes.get(name, code) != code:
                used = {*self._codes, *part.codes, *names.values()}
                names[name] = next(free for number in count(2) if (free := f"{name}_{number}") not in used)
        return _rename_part(part, names) if names else part


def _rename_part(part: Part, names: Mapping[str, str]) -> Part:
    """The part with other names of tools; the functions keep theirs, and have the new ones beside them."""
    codes = {
        names.get(name, name): code + (f"\n\n{names[name]} = {name}\n" if name in names else "")
        for name, code in part.codes.items()
    }
    return replace(
        part,
        codes=codes,
        tools=tuple(_renamed_tool(tool, names) for tool in part.tools),
        tasks=tuple(_renamed_task(task, names) for task in part.tasks),
    )


def _renamed_tool(tool: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    if tool["name"] not in names:
        return tool
    name = names[tool["name"]]
    return {**tool, "name": name, "target": {**tool["target"], "file": f"{name}.py"}}


def _renamed_task(task: Task, names: Mapping[str, str]) -> Task:
    steps = tuple(replace(step, tool=names.get(step.tool, step.tool)) for step in task.steps)
    return replace(task, steps=steps, tools=tuple(names.get(tool, tool) for tool in task.tools))
