"""Specs checked as a whole: what `check`, `run` and the other commands that take a spec begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import Fault, SpecError
from rlf.plan import Plan
from rlf.plan.compiler import compile as compile_plan
from rlf.plan.warnings import Subject, find_warnings
from rlf.spec import LoadedSpec, load_spec
from rlf.spec.inputs import look


def checked_plan(files: Sequence[Path], overrides: Sequence[str]) -> Plan:
    """The plan of a spec whose data, model and functions have been looked at too. Loads no torch.

    Raises:
        SpecError: every fault of the spec, of it as a whole and of what it names, at once.
    """
    return check_spec(files, overrides).plan


@dataclass(frozen=True, slots=True)
class Checked:
    """A spec in which nothing is wrong."""

    loaded: LoadedSpec
    plan: Plan
    warnings: tuple[Fault, ...]
    """What is legal and unwise."""
    num_train_rows: int
    num_eval_rows: int
    """0 without an evaluation set."""


def check_spec(files: Sequence[Path], overrides: Sequence[str]) -> Checked:
    """The plan with what is unwise about it. Raises SpecError, with every fault."""
    loaded = load_spec(files, overrides)
    looked = look(loaded)
    try:
        plan = compile_plan(loaded)
    except SpecError as error:
        raise SpecError([*looked.faults, *error.faults]) from error
    if looked.faults:
        raise SpecError(looked.faults)
    subject = Subject(loaded, looked.train, looked.evaluation, looked.sizes)
    return Checked(loaded, plan, tuple(find_warnings(subject)), len(looked.train), len(looked.evaluation))
