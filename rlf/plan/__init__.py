"""From a loaded spec to a plan: checked as a whole, resolved, hashed. Pure: no file is opened here.

Invariant: the same spec, files and overrides give the same plan hash on any machine.
"""

from rlf.plan.compiler import (
    Plan,
    compile,  # noqa: A004  # the trade's own word; callers write plan.compile
    plan_from_json,
    plan_to_json,
)

__all__ = ["Plan", "compile", "plan_from_json", "plan_to_json"]
