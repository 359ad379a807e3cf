"""Members of a sweep, as the command line names them."""

from __future__ import annotations

from collections.abc import Sequence

from rlf.core.errors import Fault, SpecError
from rlf.spec.overrides import alternatives, members_of

__all__ = ["members_of", "suggest_sweep"]


def suggest_sweep(error: SpecError, overrides: Sequence[str]) -> SpecError:
    """The same faults, with `-m` named where an override was given values with commas, as a sweep is."""
    swept = {text.partition("=")[0]: text for text in overrides if len(alternatives(text)) > 1}
    return SpecError(
        Fault(fault.place, fault.path, f"{fault.message} To run once with each value: -m {swept[fault.path]}")
        if fault.place.file == "override" and fault.path in swept
        else fault
        for fault in error.faults
    )
