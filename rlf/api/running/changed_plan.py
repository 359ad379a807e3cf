"""The plan of a recorded run with changes, checked as a spec that was written so."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlf.api.running.restoring import YAML_ROLES, Places, take_environment
from rlf.api.specs.plans import Checked, check_spec
from rlf.core.errors import Fault, Place, SpecError
from rlf.lineage.records import RunRecord
from rlf.spec import InputFile
from rlf.spec.nodes import OVERRIDE, KeyPath, dotted
from rlf.spec.reader import shown_path


def check_changed(record: RunRecord, places: Places, overrides: Sequence[str]) -> Checked:
    """A run's plan with overrides. It is read again as a spec, so that every check is made.

    Raises:
        SpecError: with the places where the run's own files have what is wrong.
    """
    take_environment(record, places)
    values, known = places.values(record.plan["spec"]), record.plan["origins"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{record.id}.yaml"
        file.write_text(json.dumps(_keep_written(values, known)))
        try:
            checked = check_spec([file], overrides)
        except SpecError as error:
            raise SpecError([_place_fault(fault, file, record.id, known) for fault in error.faults]) from error
    own = checked.plan.origins
    origins = {key: place if place == OVERRIDE else known.get(key, f"run {record.id}") for key, place in own.items()}
    inputs = [item for item in checked.plan.files if item.role not in YAML_ROLES]
    plan = checked.plan.model_copy(update={"files": (*_yaml_files(record, places), *inputs), "origins": origins})
    return replace(checked, plan=plan)


def _place_fault(fault: Fault, file: Path, run_id: str, known: Mapping[str, str]) -> Fault:
    """A fault where the run's files have it, and not in the file that holds its plan for a moment."""
    if Path(fault.place.file).name != file.name:
        return fault
    return Fault(Place(known.get(fault.path, f"run {run_id}")), fault.path, fault.message)


def _keep_written(value: Any, origins: Collection[str], path: KeyPath = ()) -> Any:
    """The written keys of a stored spec, without defaults: some keys are faults where nothing reads them."""
    if path and not any(key.startswith((f"{dotted(path)}.", f"{dotted(path)}[")) for key in origins):
        return value
    if isinstance(value, dict):
        items = [(key, child, (*path, key)) for key, child in value.items()]
        return {key: _keep_written(child, origins, at) for key, child, at in items if _is_written(dotted(at), origins)}
    if isinstance(value, list):
        return [_keep_written(child, origins, (*path, number)) for number, child in enumerate(value)]
    return value


def _is_written(key: str, origins: Collection[str]) -> bool:
    return key in origins or any(other.startswith((f"{key}.", f"{key}[")) for other in origins)


def _yaml_files(record: RunRecord, places: Places) -> list[InputFile]:
    """The files that the plan was read from, as they were then."""
    found = [(file, places.file(file.role, file.path)) for file in record.files if file.role in YAML_ROLES]
    return [InputFile(file.role, shown_path(place), file.sha256) for file, place in found if place is not None]
