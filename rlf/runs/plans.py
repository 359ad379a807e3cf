"""Specs checked as a whole: what `check`, `run` and the other commands that take a spec begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import Fault, SpecError
from rlf.engines.engine import Fit, Inputs, engine_of
from rlf.plan import Plan
from rlf.plan.checks import find_faults
from rlf.plan.compiler import compile as compile_plan
from rlf.plan.datasets import find_test_rows
from rlf.plan.warnings import Subject, find_warnings
from rlf.spec import LoadedSpec, load_spec
from rlf.spec.inputs import Datasets, look
from rlf.spec.load import PartlyWrong, change_spec
from rlf.spec.model_files import folder_on_disk
from rlf.types.events import Notice


@dataclass(frozen=True, slots=True)
class PlacedPlan:
    """A plan that can run at a place."""

    plan: Plan
    notices: tuple[Notice, ...] = ()
    """What is reported before its first step."""
    inputs: Inputs | None = None
    """Its data; None: not read yet."""
    place: object | None = None
    """The engine's own word for where it runs; None: here."""


@dataclass(frozen=True, slots=True)
class CheckedSpec:
    """A spec without faults."""

    loaded: LoadedSpec
    plan: Plan
    warnings: tuple[Fault, ...]
    """What is legal and unwise."""
    num_train_rows: int
    num_eval_rows: int
    """0 without an evaluation set."""
    inputs: Inputs
    """Its data, as the checks read it: of large unchanged files later, when a row is looked at."""

    def fit(self, fit: Fit, notices: Sequence[Notice] = ()) -> PlacedPlan:
        """The plan for a place, which changes nothing of what was looked at: data, model and functions.

        Args:
            notices: what is reported after what there is to say of the place.

        Raises:
            SpecError: the changed values are wrong together.
        """
        changes = [change.override for change in fit.changes]
        plan = compile_plan(change_spec(self.loaded, changes)) if changes else self.plan
        unwise = (Notice("warning", str(warning), {"path": warning.path}) for warning in self.warnings)
        return PlacedPlan(plan, (*fit.notices, *notices, *unwise), self.inputs.read(), fit.place)

    def fit_here(self, notices: Sequence[Notice] = ()) -> PlacedPlan:
        """The plan for this Python; otherwise as `fit`."""
        return self.fit(engine_of(self.plan.spec).fit_here(self.plan.spec), notices)


def check_spec(
    files: Sequence[Path],
    overrides: Sequence[str],
    read: Datasets | None = None,
    texts: Mapping[Path, str] | None = None,
    *,
    trains: bool = True,
) -> CheckedSpec:
    """Checks a spec; returns its plan and warnings. Loads no torch.

    Raises SpecError: every fault of the spec, of it as a whole and of what it names, at once.

    Args:
        read: datasets that other members of a sweep have read; what is read is added.
        texts: what is read in place of files, by absolute path.
        trains: whether it is to be trained by, so that rows of a test split are a fault.
    """
    try:
        loaded = load_spec(files, overrides, texts or {})
    except PartlyWrong as error:
        raise SpecError([*error.faults, *_find_more(error, read)]) from error
    looked, engine = look(loaded, read), engine_of(loaded.spec)
    faults = [*looked.faults, *engine.look(loaded, looked.train, looked.evaluation)]
    faults += find_test_rows(loaded, looked.train) if trains else ()
    try:
        plan = compile_plan(loaded)
    except SpecError as error:
        raise SpecError([*faults, *error.faults]) from error
    found, warnings = ([], []) if faults else engine.try_out(loaded)
    if faults or found:
        raise SpecError([*faults, *found])
    warnings += [
        *_not_looked_at(loaded),
        *find_warnings(Subject(loaded, looked.train, looked.evaluation, looked.sizes)),
    ]
    read_as = Inputs.of(plan.spec, looked.train, looked.evaluation)
    return CheckedSpec(loaded, plan, tuple(sorted(warnings)), len(looked.train), len(looked.evaluation), read_as)


def _find_more(error: PartlyWrong, read: Datasets | None) -> list[Fault]:
    """Further faults of a spec, as far as they do not depend on what is known to be wrong."""
    part = error.part
    known = {(fault.place, fault.path) for fault in error.faults}
    looked = look(part, read)
    engine = engine_of(part.spec) if part.is_sound(("engine", "kind")) else None
    own = () if engine is None else engine.look(part, looked.train, looked.evaluation)
    found = [*looked.faults, *own, *find_faults(part)]
    return [fault for fault in found if (fault.place, fault.path) not in known]


def _not_looked_at(loaded: LoadedSpec) -> list[Fault]:
    """The warning that a model is only known by name."""
    path = loaded.spec.model.path
    if folder_on_disk(path) is not None:
        return []
    message = f"{path} is not on this machine: rlf did not check its chat template, the token budget and the memory. "
    return [loaded.fault(("model", "path"), f"{message}Run `hf download {path}` to check them.")]
