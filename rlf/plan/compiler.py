"""`compile`: turns a loaded spec into a plan, or reports all its faults at once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from rlf.algo.health import Action
from rlf.core import SpecError, hash_json
from rlf.core.kinds import StrictModel
from rlf.plan.checks import find_faults
from rlf.spec import InputFile, Interpolation, LoadedSpec, RunSpec, restore, write_back
from rlf.spec.layers import absolute
from rlf.spec.models import WITHOUT_EFFECT

# The plan: a spec that has been checked as a whole, with its identity. What engines run and the lineage keeps.


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


_LATER: dict[str, dict[str, Any]] = {
    "data": {"allow_edited": False, "allow_test_data": False, "demonstrations": None},
    "rollout": {"oversample": 1.0, "deadline_s": None, "late": "keep", "agent": None},
    "train": {"staleness": 0, "sampler": "passes"},
}
"""Keys that came after plans had hashes, with their defaults."""
# In the plan's hash a file counts by its content: where the project lies must not change it.
_FILE_CALLABLE = re.compile(r"(?P<file>.+\.py):(?P<name>[^:]+)")


def compile(loaded: LoadedSpec) -> Plan:  # noqa: A001  # the word of the trade; callers write plan.compile
    """The plan of a spec.

    Raises:
        SpecError: keys that are right one by one and wrong together.
    """
    faults = find_faults(loaded)
    if faults:
        raise SpecError(faults)
    return Plan(
        spec=loaded.spec,
        plan_hash=hash_plan(loaded.spec, loaded.interpolated, loaded.files),
        files=loaded.files,
        origins=loaded.origins,
        interpolated=loaded.interpolated,
    )


def hash_plan(
    spec: RunSpec, interpolated: Sequence[Interpolation], files: Sequence[InputFile], cwd: Path | None = None
) -> str:
    """The identity of a plan: equal for two plans that must give the same results, on any machine.

    Args:
        files: the spec's files with their hashes; paths start at `cwd`, by default the current folder.
    """
    return hash_json(canonical(spec, interpolated, files, cwd or Path.cwd()))


def canonical(
    spec: RunSpec, interpolated: Sequence[Interpolation], files: Sequence[InputFile], cwd: Path
) -> dict[str, Any]:
    """The part of a spec that decides its results, as JSON, with hashes of contents in place of local paths."""
    values = spec.model_dump(mode="json", by_alias=True)
    write_back(values, interpolated)
    return _canonical_values(values, spec.engine.WITHOUT_EFFECT, files, cwd)


def hash_recorded(plan: Mapping[str, Any], without_effect: Sequence[str], cwd: Path) -> str:
    """The identity of a plan as it is stored, whatever keys the specs of this rlf have beside its own.

    Args:
        without_effect: keys of its engine that change no result.
        cwd: the folder that paths of its files started at.
    """
    files = [InputFile(**file) for file in plan["files"]]
    return hash_json(_canonical_values(deepcopy(plan["spec"]), without_effect, files, cwd))


def _canonical_values(
    values: dict[str, Any], without_effect: Sequence[str], files: Sequence[InputFile], cwd: Path
) -> dict[str, Any]:
    """The same of a spec's values, which are changed. A key may be missing: the plan is older than it."""
    for key in WITHOUT_EFFECT:
        values.pop(key, None)
    for key in without_effect:
        values["engine"].pop(key, None)
    values["health"] = {name: guard for name, guard in values["health"].items() if _can_stop(guard)}
    for item in (*values["tools"], *values["rewards"]):
        item.pop("tests", None)
    for term in values["rewards"]:  # plans without hidden terms keep the hash that they had before there were any
        if not term.get("hidden"):
            term.pop("hidden", None)
            term.pop("every", None)
    _drop_empty_files([*values["tools"], *values["rewards"]])
    for section, keys in _LATER.items():  # plans that leave them at their defaults keep the hash that they had before
        for key, default in keys.items():
            if values[section].get(key, default) == default:
                values[section].pop(key, None)
    evaluated = values["data"].get("eval") or {}
    if evaluated.get("cluster") is None:
        evaluated.pop("cluster", None)
    if values.get("success") is None:
        values.pop("success", None)  # plans that declare none keep the hash that they had before it could be
    if values.get("env") is None:
        values.pop("env", None)  # plans without a world keep the hash that they had before there were any
    else:
        _drop_unset_keys(values["env"])
    for tool in values["tools"]:
        tool["target"].get("server", {}).pop("cwd", None)  # where an MCP server starts is this machine's
    values["code"] = sorted({file.sha256 for file in files if file.role == "code"})
    hashed = _with_contents(values, {str(absolute(Path(file.path), cwd)): file.sha256 for file in files})
    assert isinstance(hashed, dict), f"a spec is a mapping, got {type(hashed)}"
    return hashed


def _drop_empty_files(items: Sequence[dict[str, Any]]) -> None:
    """Plans of tools and rewards that declare no files keep the hash that they had before there was such a key."""
    for item in items:
        if not item.get("files"):
            item.pop("files", None)
        _drop_empty_files(item.get("target", {}).get("tools", ()))


def _drop_unset_keys(env: dict[str, Any]) -> None:
    """Plans of worlds keep the hash that they had before there were these keys."""
    for key in ("sandbox", "server", "template"):
        if env.get(key, "") is None:
            del env[key]
    if isinstance(env.get("world"), dict):
        _drop_unset_keys(env["world"])


def _can_stop(guard: Any) -> bool:
    """Whether a setting of `health:` can end a run: one that only warns changes no result."""
    action = guard.get("action") if isinstance(guard, dict) else guard
    return action is not None and action != Action.WARN


def _with_contents(value: Any, contents: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_contents(child, contents) for key, child in value.items()}
    if isinstance(value, list):
        return [_with_contents(child, contents) for child in value]
    if not isinstance(value, str):
        return value
    if value in contents:
        return f"sha256:{contents[value]}"
    callable_ = _FILE_CALLABLE.fullmatch(value)
    if callable_ is not None and callable_["file"] in contents:
        return f"sha256:{contents[callable_['file']]}:{callable_['name']}"
    return value
