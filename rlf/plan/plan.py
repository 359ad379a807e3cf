"""The plan: a spec that has been checked as a whole, with its identity. What engines run and the lineage keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from rlf.core.kinds import StrictModel
from rlf.spec import InputFile, Interpolation, LoadedSpec, RunSpec, restore, write_back
from rlf.spec.nodes import OVERRIDE, KeyPath, Node, dotted, walk


class Plan(StrictModel):
    """A compiled run: all that an engine needs to know, and nothing that differs between machines in its hash."""

    spec: RunSpec
    plan_hash: str
    """sha256 of what decides the results, with contents in place of paths: equal for equal runs, on any machine.

    It covers the source of tools and rewards with what they import within the project; names, checkpoints, examples and
    where the run is reported are no part of it."""
    files: tuple[InputFile, ...]
    """Every input file, with its hash."""
    origins: Mapping[str, str]
    """Where each value came from: `file:line:column` or `override`, by dotted key; defaults are absent."""
    interpolated: tuple[Interpolation, ...]
    """Values of tools, rewards and trackers that were filled in: their text is stored in their place,
    they may be secret."""

    @property
    def num_trajectories_per_step(self) -> int:
        """Rollouts collected for one update."""
        return self.spec.train.prompts_per_step * self.spec.rollout.num_generations

    @model_serializer(mode="wrap")
    def _without_secrets(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        write_back(values["spec"], self.interpolated)
        return values


def plan_to_json(plan: Plan) -> str:
    """The plan as the lineage stores it. Values from the environment are stored as `${oc.env:NAME}`."""
    return plan.model_dump_json(by_alias=True)


def plan_from_json(text: str) -> Plan:
    """The plan that `plan_to_json` stored, without its files. Raises RlfError where a variable is not set."""
    values = json.loads(text)
    restore(values["spec"], [Interpolation(tuple(item["path"]), item["text"]) for item in values["interpolated"]])
    return Plan.model_validate(values)


# Every value of a plan with where it came from, and how two plans differ. Pure.

_WHOLE = frozenset({"inputSchema", "tests"})
"""Keys whose values are one value each: the user's own JSON."""


class Source(StrEnum):
    """Who set a value."""

    DEFAULT = "default"
    """Nobody."""
    FILE = "file"
    """A spec, tool or reward file."""
    OVERRIDE = "override"
    """The command line."""
    ENVIRONMENT = "environment"
    """A variable, named by a file or the command line."""


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """One value of the resolved spec."""

    path: str
    value: Any
    """As JSON; of tools and rewards the text as written where it was filled in, since that may be secret."""
    source: Source
    place: str
    """`file:line:column`, with the `${...}` it was filled in from; empty for defaults and overrides."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose values differ; None where one of the plans has no such key."""

    path: str
    left: PlannedValue | None
    right: PlannedValue | None


def planned_values(plan: Plan, loaded: LoadedSpec) -> list[PlannedValue]:
    """Every value, in the order of the spec's sections."""
    values = plan.model_dump(mode="json", by_alias=True)["spec"]
    nodes = {path: node for path, node in walk(loaded.tree) if path}
    return [PlannedValue(dotted(path), value, *_origin_of(nodes.get(path))) for path, value in _list_leaves(values, ())]


def leaves(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a plan's spec by key, as `planned_values` has them."""
    return {dotted(path): value for path, value in _list_leaves(values, ()) if path}


def differences(left: Sequence[PlannedValue], right: Sequence[PlannedValue]) -> list[Difference]:
    """The keys whose values differ, in the order of the left plan, then what only the right one has."""
    by_path: tuple[Mapping[str, PlannedValue], ...] = tuple({v.path: v for v in side} for side in (left, right))
    paths = dict.fromkeys([*by_path[0], *by_path[1]])
    pairs = [Difference(path, by_path[0].get(path), by_path[1].get(path)) for path in paths]
    return [pair for pair in pairs if pair.left is None or pair.right is None or pair.left.value != pair.right.value]


def _list_leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Scalars, lists of scalars and empty collections, and values that are the user's own JSON."""
    if path and path[-1] in _WHOLE:
        yield path, value
    elif isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _list_leaves(child, (*path, key))
    elif isinstance(value, list) and any(isinstance(child, dict | list) for child in value):
        for index, child in enumerate(value):
            yield from _list_leaves(child, (*path, index))
    else:
        yield path, value


def _origin_of(node: Node | None) -> tuple[Source, str]:
    if node is None:
        return Source.DEFAULT, ""
    given = node.place.file == OVERRIDE
    place = "" if given else node.origin
    if node.written is not None and "oc.env" in node.written:
        return Source.ENVIRONMENT, f"{place} {node.written}".strip()
    return (Source.OVERRIDE if given else Source.FILE), place
