"""`rlf check`: whether a spec is right, without running anything."""

from __future__ import annotations

from rlf.cli.arguments import AsJson, SpecArguments, split_arguments
from rlf.cli.envelope import print_envelope
from rlf.core.errors import SpecError


def check(arguments: SpecArguments, as_json: AsJson = False) -> None:
    """Report every fault of a spec and of what it names, without running it."""
    from rlf.api.plans import checked_plan

    files, overrides = split_arguments(arguments)
    try:
        plan = checked_plan(files, overrides)
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
