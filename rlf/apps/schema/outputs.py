"""JSON Schema (2020-12) of what commands print with `--json`, from their types.

The rules are those of `rlf.core.plain_json.as_json`. Objects have exactly the keys of their dataclass.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from rlf.apps.schema import schemas
from rlf.apps.schema.schemas import DIALECT, Schema
from rlf.cli.commands import HOMES
from rlf.core.plain_json import VERSION, json_fields, json_properties
from rlf.core.registry import is_present
from rlf.spec.facts import attribute_docs, first_paragraph

# The types that commands print with `--json`: of `data` by command, and of events by command and event.
#
# A new command is enrolled here with a frozen dataclass; a test compares the names with those that commands print
# under. Loaded by `rlf schema output`, the page's description and tests alone: it imports what every command may print.

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SchemaFiles:
    """Files of written schemas."""

    files: tuple[Path, ...]


_OUTPUTS: dict[str, str] = {
    "init": "apps.init.projects.Project | list[apps.init.projects.Recipe]",
    "check": "python.specs.Check",
    "plan": "runs.planning.PlanReport | runs.planning.PlanDifference",
    "run": "runs.sink.RunOutcome | reports.sweep.SweepReport",
    "resume": "runs.sink.RunOutcome | reports.sweep.SweepReport",
    "chaos": "apps.chaos.chaos.Chaos",
    "demos": "apps.demos.demos.DemosReport",
    "rehearse": "apps.rehearse.rehearsals.Rehearsal | runs.sink.RunOutcome",
    "eval": "reports.evaluations.EvaluationReport",
    "forecast": "apps.evaluate.forecast.Forecast",
    "climb": "apps.climb.climb.Climb",
    "prompt": "apps.prompt.search.PromptResult",
    "bench": (
        "list[apps.bench.run.BenchmarkLine] | apps.bench.run.BenchmarkFolder | apps.bench.run.BenchmarkResult | "
        "list[apps.bench.robust.RobustRow]"
    ),
    "export": "apps.keep.export.ModelExport",
    "verify": "apps.keep.proof.ModelProof",
    "trace": (
        "list[apps.look.trace.TrajectoryMatch] | list[lineage.records.FoundCall] | lineage.records.StoredTrajectory"
    ),
    "why": (
        "apps.evaluate.why.Explanation | apps.evaluate.explain_run.RunExplanation | apps.evaluate.turn.TurnExplanation"
    ),
    "web": "apps.web.bundles.Bundle",
    "schema": "apps.schema.outputs.SchemaFiles | apps.schema.outputs.Json",
    "doctor": "apps.doctor.findings.Examination",
    "agent certify": "apps.serve.agents.certify.AgentCertificate",
    "env build": "apps.build.build.BuildEstimate | apps.build.build.Built",
    "env list": "list[apps.worlds.worlds.WorldKind]",
    "env prove": "apps.build.build.FolderProof | apps.worlds.trial.Page",
    "env show": "apps.build.build.ShownWorld | apps.worlds.worlds.DescribedWorld",
    "env attack": "apps.worlds.trial.Page",
    "env play": "environments.playing.Played",
    "env import": "apps.imports.worlds.ImportedWorld",
    "runs list": "list[reports.overview.Overview]",
    "runs show": (
        "reports.report.Report | reports.sweep.SweepReport | reports.evaluations.EvaluationReport | "
        "lineage.graph.Graph | lineage.records.StoredTrajectory"
    ),
    "runs tail": "apps.look.events.TailEnd",
    "runs compare": "apps.compare.comparison.Comparison",
    "runs diff": "list[lineage.graph.NodeDifference]",
    "runs whence": "list[lineage.graph.GraphNode]",
    "runs fork": "runs.sink.RunOutcome",
    "runs branch": "apps.evaluate.branches.Branches",
    "runs reproduce": "apps.keep.forks.Agreement | runs.sink.RunOutcome",
    "runs tag": "lineage.upkeep.RunTags",
    "runs note": "lineage.upkeep.RunNote",
    "runs rm": "apps.keep.upkeep.Removals",
    "runs gc": "apps.keep.upkeep.Thinning",
    "runs verify": "apps.keep.verification.Verification",
    "runs salvage": "apps.keep.salvage.Salvage",
    "runs export": "apps.keep.tables.ExportedRuns",
    "runs import": "apps.keep.tables.ImportedRuns",
    "format show": "runs.players.ShownPrompt",
    "format parse": "chat.marks.ParsedTurn",
    "format certify": "chat.format.Certificate",
    "tools list": "list[python.specs.Tool]",
    "tools show": "python.specs.Tool",
    "tools test": "list[apps.tools.trials.ToolTrial] | apps.tools.trials.CalledTool",
    "tools bench": "apps.tools.trials.ToolBench",
    "tools import": "apps.imports.tools.ImportFiles",
    "rewards list": "list[apps.rewards.scoring.RewardTerm] | list[apps.rewards.scoring.RewardKind]",
    "rewards show": "apps.rewards.scoring.ShownReward",
    "rewards test": "list[apps.rewards.scoring.Trial]",
    "rewards score": "apps.rewards.scoring.Rescoring",
    "rewards attack": "apps.attack.attack.Attack | list[apps.attack.attack.Attack]",
    "rewards calibrate": "apps.judges.calibration.Calibration",
    "serve": "apps.serve.serve.ServedEndpoint",
}
"""The type of a command's result, by its place below `rlf`."""

_OF_RUN = {
    "started": "runs.sink.RunInfo",
    "step": "reports.progress.StepLine",
    "evaluation": "reports.progress.EvaluationLine",
    "interrupted": "reports.progress.InterruptedLine",
    "checkpoint": "types.CheckpointSaved",
    "notice": "types.Notice",
    "finished": "types.RunFinished",
}
_OF_EVALUATION = {
    "started": "apps.evaluate.run.EvaluationStart",
    "progress": "apps.evaluate.play.EvaluationProgress",
    **{name: _OF_RUN[name] for name in ("evaluation", "interrupted", "notice", "finished")},
}
_EVENTS: dict[str, dict[str, str]] = {
    "run": {**_OF_RUN, "member": "apps.sweep.sweep.Member"},
    "resume": {**_OF_RUN, "member": "apps.sweep.sweep.Member"},
    "rehearse": {**_OF_RUN, "stage": "apps.rehearse.rehearsals.RehearsalStage"},
    "eval": _OF_EVALUATION,
    "forecast": _OF_EVALUATION,
    "web": {"open": "apps.web.settings.OpenedPage"},
    "runs fork": _OF_RUN,
    "runs reproduce": _OF_RUN,
    "runs tail": {name: _OF_RUN[name] for name in ("step", "evaluation", "notice")},
}
"""The types of the events that a command prints before its result, each on a line of its own."""


_TYPE = re.compile(r"([a-z_.]+)\.([A-Z]\w+)")


def _type_of(text: str) -> Any:
    """The type that a text names, without the arms of apps that are not here."""
    arms = [arm for arm in text.split(" | ") if all(is_present(home) for home, _ in _TYPE.findall(arm))]
    named = {
        name: getattr(importlib.import_module(f"rlf.{home}"), name) for home, name in _TYPE.findall("|".join(arms))
    }
    return eval(_TYPE.sub(r"\2", " | ".join(arms)) or "None", named)


OUTPUTS: dict[str, Any] = {
    command: _type_of(text) for command, text in _OUTPUTS.items() if command.partition(".")[0] in HOMES
}
EVENTS: dict[str, dict[str, Any]] = {
    command: {event: _type_of(name) for event, name in events.items()}
    for command, events in _EVENTS.items()
    if command in HOMES
}

OUTPUT = "output"
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    Path: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # null: a number that is not finite
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


def any_schema_text(role: str) -> str:
    """The schema of spec, tool or reward files, or of what commands print: `docs/schema/ROLE.json` has it."""
    if role != OUTPUT:
        return schemas.schema_text(role)
    return schemas.dump_schema(output_schema())


def write_all_schemas(folder: Path) -> SchemaFiles:
    """Writes a file for each of them."""
    paths = (*schemas.write_schemas(folder), folder / f"{OUTPUT}.json")
    paths[-1].write_text(any_schema_text(OUTPUT), encoding="utf-8")
    return SchemaFiles(paths)


@cache
def output_schema() -> Schema:
    """The schema of a line of output; `$defs` has one definition for each command, and one for each event of it."""
    defs = _Definitions()
    lines: Schema = {}
    for command, kind in OUTPUTS.items():
        lines[command] = _line_schema(command, defs.schema(kind))
    for command, kinds in EVENTS.items():
        for event, kind in kinds.items():
            lines[f"{command}: {event}"] = _line_schema(command, defs.schema(kind), event)
    return {
        "$schema": DIALECT,
        "title": "A line that rlf prints with --json",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in lines],
        "$defs": lines | dict(sorted(defs.found.items())),
    }


def returned_schemas(functions: Mapping[str, Callable[..., Any]], refs: str) -> tuple[dict[str, Schema], Schema]:
    """The schema of what each function returns, as JSON, and the definitions that they name.

    Args:
        refs: where a document has the definitions, e.g. `#/components/schemas/`.
    """
    defs = _Definitions(refs)
    found = {
        name: defs.schema(get_type_hints(function, localns=_imported_for_types(function.__module__))["return"])
        for name, function in functions.items()
    }
    return found, dict(sorted(defs.found.items()))


def _line_schema(command: str, data: Schema, event: str | None = None) -> Schema:
    head: Schema = {"rlf": {"const": VERSION}, "command": {"const": command}}
    if event is not None:
        head["event"] = {"const": event}
    return _object_schema({**head, "data": data})


def _object_schema(properties: Schema, required: Sequence[str] | None = None) -> Schema:
    keys = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": keys, "additionalProperties": False}


class _Definitions:
    """Schemas of types; dataclasses and enums become definitions."""

    def __init__(self, refs: str = "#/$defs/") -> None:
        self._refs = refs
        self.found: dict[str, Schema] = {}
        self._name_by_type: dict[Any, str] = {}

    def schema(self, kind: Any) -> Schema:
        """The schema of a type."""
        if isinstance(kind, types.GenericAlias) or get_origin(kind) is not None:
            return self._composed_schema(get_origin(kind), get_args(kind))
        if kind in _PLAIN:
            return _PLAIN[kind]
        if kind in (dict, Mapping):
            return {"type": "object"}
        assert inspect.isclass(kind), f"{kind!r} has no JSON form"
        if issubclass(kind, tuple):  # a NamedTuple
            return self._composed_schema(tuple, tuple(get_type_hints(kind).values()))
        if not (is_dataclass(kind) or issubclass(kind, Enum)):
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} has no JSON form. Print a dataclass.")
        # The definition's name: the class's own, or with its module where another class has it.
        if kind not in self._name_by_type:
            taken = kind.__name__ in self.found
            name = f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}" if taken else kind.__name__
            assert name not in self.found, f"two classes {name} in the output of commands"
            self._name_by_type[kind] = name
            self.found[name] = {}  # for types that hold themselves
            self.found[name] = self._make_definition(kind)
        return {"$ref": f"{self._refs}{self._name_by_type[kind]}"}

    def _composed_schema(self, origin: Any, arguments: tuple[Any, ...]) -> Schema:
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.schema(argument) for argument in arguments]}
        if origin is Counter:
            return {"type": "object", "additionalProperties": self.schema(int)}
        if issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.schema(arguments[1])}
        assert issubclass(origin, Sequence | Set), f"{origin!r} has no JSON form"
        if issubclass(origin, tuple) and arguments[-1] is not ...:
            size = len(arguments)
            return {"type": "array", "prefixItems": [*map(self.schema, arguments)], "minItems": size, "maxItems": size}
        return {"type": "array", "items": self.schema(arguments[0])}

    def _make_definition(self, kind: Any) -> Schema:
        if issubclass(kind, Enum):
            return {"enum": [member.value for member in kind]}
        hints, docs = get_type_hints(kind, localns=_imported_for_types(kind.__module__)), attribute_docs(kind)
        optional = {name for name, field in json_fields(kind) if "optional" in field.metadata}
        properties = {
            name: self.schema(_without_none(hints[field.name]) if name in optional else hints[field.name])
            | _description_of(docs.get(field.name))
            for name, field in json_fields(kind)
        }
        for name, source in json_properties(kind).items():
            getter = inspect.getattr_static(kind, source).fget
            own = get_type_hints(getter, localns=_imported_for_types(kind.__module__))
            properties[name] = self.schema(own["return"]) | _description_of(first_paragraph(getter))
        required = [name for name in properties if name not in optional]
        return {"description": first_paragraph(kind), **_object_schema(properties, required)}


def _without_none(hint: Any) -> Any:
    return Union[tuple(part for part in get_args(hint) if part is not type(None))]  # noqa: UP007


def _description_of(words: str | None) -> Schema:
    return {"description": " ".join(words.split())} if words else {}


@cache
def _imported_for_types(module: str) -> dict[str, Any]:
    """Names that a module imports under `if TYPE_CHECKING:`, for its annotations."""
    found: dict[str, Any] = {}
    for statement in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for imported in statement.body:
                if isinstance(imported, ast.ImportFrom) and imported.module:
                    names = [(alias.name, alias.asname or alias.name) for alias in imported.names]
                    source = importlib.import_module(imported.module)
                    found |= {known: getattr(source, name) for name, known in names if hasattr(source, name)}
    return found
