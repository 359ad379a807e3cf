"""The plan: a spec that has been checked as a whole, with its identity. What engines run and the lineage keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from rlf.core.kinds import StrictModel
from rlf.spec import InputFile, Interpolated, RunSpec, fill_in, write_back


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
    interpolated: tuple[Interpolated, ...]
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
    _keep_normalization(values["spec"])
    fill_in(values["spec"], [Interpolated(tuple(item["path"]), item["text"]) for item in values["interpolated"]])
    return Plan.model_validate(values)


_ONCE_SQUAD = frozenset({"exact_match", "token_f1", "contains", "collection"})
"""Rules that compared as SQuAD does before they had the key `normalize`."""


def _keep_normalization(spec: dict[str, Any]) -> None:
    """Gives terms of a plan that was stored without `normalize` the one that they were scored with.

    A plan is stored with every default, so that only older ones lack the key.
    """
    for term in spec.get("rewards") or ():
        if term.get("rule") in _ONCE_SQUAD:
            term.setdefault("normalize", "squad")
