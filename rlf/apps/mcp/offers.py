"""Which commands are offered, with their arguments as JSON Schema and as words of a command line. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import rlf
from rlf.cli.commands import HOMES
from rlf.core.errors import NotFoundError, RlfError
from rlf.processes.child import run_to_end

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolInput:
    """One argument of a tool."""

    schema: Json
    option: str = ""
    """`--step` for `--step VALUE`, or for the flag of a boolean; empty: the value stands alone."""
    is_path: bool = False
    """Whether it must lie in the project."""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """One command as a tool."""

    command: str
    about: str
    parameters: Mapping[str, ToolInput] = field(default_factory=dict)
    runs_code: bool = False
    """Whether it runs or writes something of the project, so that only `--allow-run` offers it."""
    is_background: bool = False
    """Whether it continues after the call, which returns its first line."""
    takes_runs: bool = False
    """Whether the command has `--runs`."""
    takes_no_import: bool = False
    """Whether the command has `--no-import`, which it gets where no code may run."""

    @property
    def input_schema(self) -> Json:
        """JSON Schema of the arguments."""
        return {
            "type": "object",
            "properties": {name: parameter.schema for name, parameter in self.parameters.items()},
            "required": [name for name, parameter in self.parameters.items() if parameter.is_required],
            "additionalProperties": False,
        }

    def words(self, arguments: Mapping[str, Any], project: Path) -> list[str]:
        """The command line, without `rlf`. Raises RlfError for a path outside of the project, or a value like `-x`."""
        options, values = list[str](), list[str]()
        for name, parameter in self.parameters.items():
            given = arguments.get(name)
            if given is None or given is False:
                continue
            if given is True:
                options += [parameter.option]
                continue
            for value in given if isinstance(given, list | tuple) else [given]:
                word = _as_word(name, value, parameter, project)
                if parameter.option:
                    options += [parameter.option, word]
                else:
                    values += [word]
        return [*self.command.split(), *options, *values]


def _as_word(name: str, value: Any, parameter: ToolInput, project: Path) -> str:
    """One value as a word that no parser takes for an option, and that names no file outside of the project."""
    word = str(value)
    if word.startswith("-") or "\0" in word:
        raise RlfError(f"{name}: got {word[:80]!r}; expected a value that does not begin with `-`.")
    if parameter.is_path and not (project / word).resolve().is_relative_to(project):
        raise RlfError(f"{name}: {word[:200]} is outside of the project {project}. Name a file in it.")
    return word


def _text(about: str) -> Json:
    return {"type": "string", "description": about}


def _texts(about: str, pattern: str = "") -> Json:
    return {"type": "array", "items": {"type": "string", "pattern": pattern}, "description": about}


def _count(about: str, least: int = 0) -> Json:
    return {"type": "integer", "minimum": least, "description": about}


# As the command line tells them apart: what holds a `=`, or begins with `~` and names no file, is an override.
_NO_OVERRIDE, _OVERRIDE = "^[^=~][^=]*$", "^(~[^/]*|[^=]*=.*)$"
_SPECS = ToolInput(
    _texts("Spec files, e.g. specs/search.yaml; later ones are laid over earlier ones.", _NO_OVERRIDE)
    | {"minItems": 1},
    is_path=True,
    is_required=True,
)
_FILES = ToolInput(
    _texts("Specs or files of parts; none: every file of the project's folder of them.", _NO_OVERRIDE), is_path=True
)
_OVERRIDES = ToolInput(_texts("Values in place of the spec's, e.g. train.steps=20 or seed=1.", _OVERRIDE))
_RUN = ToolInput(_text("A run's id, the beginning of one, or `latest`."), is_required=True)
_SPEC = {"specs": _SPECS, "overrides": _OVERRIDES}
_PARTS = {"files": _FILES, "overrides": _OVERRIDES}

OFFERS: Mapping[str, Offer] = {
    "init": Offer(
        "init",
        "Make a project in a new folder: spec, tools, rewards, data, AGENTS.md.",
        {
            "template": ToolInput(_text("search, sql, code, mcp, judge, or python for an own function."), "--template"),
            "folder": ToolInput(_text("The folder; its name is the run's."), is_path=True, is_required=True),
        },
        runs_code=True,
    ),
    "check": Offer("check", "Report every fault of a spec with file, line and fix.", _SPEC, takes_no_import=True),
    "plan": Offer(
        "plan",
        "Show what a run will be: values, files, work, memory.",
        {**_SPEC, "gpu": ToolInput(_text("Memory of the GPU, e.g. 24GB."), "--gpu")},
        takes_runs=True,
        takes_no_import=True,
    ),
    "tools_test": Offer("tools test", "Run the examples of tools, then a fault drill.", _PARTS, runs_code=True),
    "rewards_test": Offer("rewards test", "Try reward terms on their examples.", _PARTS, runs_code=True),
    "forecast": Offer(
        "forecast",
        "What a run's first steps will be like, from groups that are played without an update.",
        {**_SPEC, "groups": ToolInput(_count("Groups to play.", 2), "--groups")},
        runs_code=True,
        takes_runs=True,
    ),
    "env_prove": Offer(
        "env prove",
        "Prove the world of a spec without a model, point by point.",
        {**_SPEC, "tasks": ToolInput(_count("Tasks to try.", 1), "--tasks")},
        runs_code=True,
    ),
    "run": Offer(
        "run",
        "Train as a spec says, in the background; returns the run's id at once. See `status`.",
        _SPEC,
        runs_code=True,
        is_background=True,
        takes_runs=True,
    ),
    "resume": Offer(
        "resume",
        "Continue a run from its last checkpoint, in the background.",
        {"run": _RUN},
        runs_code=True,
        is_background=True,
        takes_runs=True,
    ),
    "runs": Offer(
        "runs list",
        "List runs, newest first.",
        {
            "filter": ToolInput(_text('Which, e.g. `success > 0.8 and spec == "search"`.')),
            "limit": ToolInput(_count("The first of them.", 1), "--limit"),
        },
        takes_runs=True,
    ),
    "status": Offer("runs show", "A run's status, result, curves and costs.", {"run": _RUN}, takes_runs=True),
    "trajectories": Offer(
        "trace",
        "Find trajectories of a run, or with `k` show one turn by turn.",
        {
            "step": ToolInput(_count("A step; with `k` its latest otherwise."), "--step"),
            "phase": ToolInput(_text("train, or an evaluation's sampled or greedy."), "--phase"),
            "failed": ToolInput({"type": "boolean", "description": "Only those without success."}, "--failed"),
            "text": ToolInput(_text("Words in prompt, turns or results."), "--text"),
            "limit": ToolInput(_count("How many to list.", 1), "--limit"),
            "run": _RUN,
            "k": ToolInput(_count("The number of one, from 0.")),
        },
        takes_runs=True,
    ),
    "why": Offer(
        "why",
        "Why a run got worse or did not learn: likely causes with their evidence, and what would refute each.",
        {"run": _RUN},
        takes_runs=True,
    ),
    "why_turn": Offer(
        "why",
        "Which turn of a trajectory decided: the run's model plays on from before each of them.",
        {
            "step": ToolInput(_count("Its step."), "--step", is_required=True),
            "phase": ToolInput(_text("train, or an evaluation's sampled or greedy."), "--phase"),
            "samples": ToolInput(_count("Continuations of each turn.", 2), "--samples"),
            "run": _RUN,
            "k": ToolInput(_count("Which trajectory of the step, from 0."), is_required=True),
        },
        runs_code=True,
        takes_runs=True,
    ),
    "compare": Offer(
        "runs compare",
        "What differs between runs, and whether it is more than chance.",
        {
            "runs": ToolInput(
                _texts("The baseline first; commas join the seeds of one arm.") | {"minItems": 2}, is_required=True
            )
        },
        takes_runs=True,
    ),
}
"""The tools by name."""


_DOCS = Path(rlf.__file__).parents[1] / "docs"
"""Of a checkout; an installed package has none."""
_FOLDERS = ("specs", "tool_specs", "reward_specs")
_ROLES = ("spec", "tool", "reward", "output")
_MAX_BYTES = 1_000_000
_LIMIT_S = 60.0


class Readable(NamedTuple):
    """One resource."""

    uri: str
    name: str
    mime_type: str


def list_readable(project: Path) -> Iterator[Readable]:
    """Everything that `read_resource_text` reads."""
    for path in sorted(_DOCS.rglob("*.md")):
        yield _of_file("docs", _DOCS, path, "text/markdown")
    for role in _ROLES:
        yield Readable(f"rlf://schema/{role}", f"JSON Schema of {role}", "application/json")
    for command in HOMES:
        yield Readable(f"rlf://help/{quote(command)}", f"rlf {command} --help", "text/plain")
    for folder in _FOLDERS:
        for path in sorted((project / folder).rglob("*.yaml")):
            if path.resolve().is_relative_to(project):  # a link may lead anywhere
                yield _of_file("project", project, path, "application/yaml")


def _of_file(kind: str, root: Path, path: Path, mime_type: str) -> Readable:
    name = path.relative_to(root).as_posix()
    return Readable(f"rlf://{kind}/{quote(name)}", name, mime_type)


def read_resource_text(uri: str, project: Path) -> tuple[str, str]:
    """The text of a resource and its type. Raises NotFoundError for any that is not listed."""
    found = next((each for each in list_readable(project) if each.uri == uri), None)
    if found is None:
        raise NotFoundError(f"{uri[:200]}: no such resource. List the resources for those that are there.")
    kind, _, name = uri.removeprefix("rlf://").partition("/")
    if kind in ("docs", "project"):
        file = (_DOCS if kind == "docs" else project) / unquote(name)
        return file.read_bytes()[:_MAX_BYTES].decode("utf-8", errors="replace"), found.mime_type
    words = ["schema", name] if kind == "schema" else [*unquote(name).split(), "--help"]
    command = [sys.executable, "-m", "rlf", *words]
    return run_to_end(command, _LIMIT_S).stdout, found.mime_type
