"""Specs checked as a whole: what `check`, `run` and the other commands that take a spec begin with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlf.core.errors import SpecError
from rlf.plan import Plan
from rlf.plan.compiler import compile as compile_plan
from rlf.spec import LoadedSpec, check_inputs, load_spec


def checked_plan(files: Sequence[Path], overrides: Sequence[str]) -> Plan:
    """The plan of a spec whose data, model and functions have been looked at too. Loads no torch.

    Raises:
        SpecError: every fault of the spec, of it as a whole and of what it names, at once.
    """
    return checked_spec(files, overrides)[1]


def checked_spec(files: Sequence[Path], overrides: Sequence[str]) -> tuple[LoadedSpec, Plan]:
    """The same with the spec and the places of its values. Raises SpecError."""
    loaded = load_spec(files, overrides)
    faults = check_inputs(loaded)
    try:
        plan = compile_plan(loaded)
    except SpecError as error:
        raise SpecError([*faults, *error.faults]) from error
    if faults:
        raise SpecError(faults)
    return loaded, plan
