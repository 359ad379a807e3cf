"""`rlf check`: whether a spec is right, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.cli.arguments import AsJson, SpecArguments, split_arguments
from rlf.cli.envelope import print_envelope
from rlf.core.errors import SpecError

if TYPE_CHECKING:
    from rlf.plan import Plan


def check(arguments: SpecArguments, as_json: AsJson = False) -> None:
    """Report every fault of a spec and of what it names, without running it."""
    files, overrides = split_arguments(arguments)
    try:
        plan = _checked_plan(files, overrides)
    except SpecError as error:
        if as_json:
            print_envelope("check", {"ok": False, "faults": error.faults})
        raise
    if as_json:
        print_envelope("check", {"ok": True, "faults": [], "name": plan.spec.name, "plan_hash": plan.plan_hash})
        return
    spec = plan.spec
    size = f"{spec.train.steps} steps of {plan.num_trajectories_per_step} trajectories"
    parts = [f"{len(spec.tools)} tools", f"{len(spec.rewards)} reward terms", size, f"plan {plan.plan_hash[:12]}"]
    print(f"{' '.join(str(file) for file in files)}: ok: {spec.name}, {', '.join(parts)}")


def _checked_plan(files: Sequence[Path], overrides: Sequence[str]) -> Plan:
    """The plan; raises SpecError with the faults of the spec as a whole and of what it names, all at once."""
    from rlf.plan import compile as compile_plan
    from rlf.spec import check_inputs, load_spec

    loaded = load_spec(files, overrides)
    faults = check_inputs(loaded)
    try:
        plan = compile_plan(loaded)
    except SpecError as error:
        raise SpecError([*faults, *error.faults]) from error
    if faults:
        raise SpecError(faults)
    return plan
