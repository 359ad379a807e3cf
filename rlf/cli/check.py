"""`rlf check`: whether a spec is right, without running anything."""

from __future__ import annotations

import sys

from rlf.cli.arguments import AsJson, SpecArguments, split_arguments
from rlf.cli.envelope import print_envelope
from rlf.core.errors import SpecError


def check(arguments: SpecArguments, as_json: AsJson = False) -> None:
    """Report every fault of a spec and of what it names, without running it.

    What is legal and unwise is told on stderr as a warning, and is no failure.
    """
    from rlf.api.plans import check_spec

    files, overrides = split_arguments(arguments)
    try:
        checked = check_spec(files, overrides)
    except SpecError as error:
        if as_json:
            print_envelope("check", {"ok": False, "faults": error.faults, "warnings": []})
        raise
    plan, spec = checked.plan, checked.plan.spec
    if as_json:
        about = {"name": spec.name, "plan_hash": plan.plan_hash}
        print_envelope("check", {"ok": True, "faults": [], "warnings": checked.warnings, **about})
        return
    for warning in checked.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    size = f"{spec.train.steps} steps of {plan.num_trajectories_per_step} trajectories"
    parts = [f"{len(spec.tools)} tools", f"{len(spec.rewards)} reward terms", size, f"plan {plan.plan_hash[:12]}"]
    print(f"{' '.join(str(file) for file in files)}: ok: {spec.name}, {', '.join(parts)}")
