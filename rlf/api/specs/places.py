"""Where a checked spec runs: as it is, or with what its engine changes for this place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.api.specs.plans import Checked, check_spec
from rlf.engines.engine import Fit, engine_of
from rlf.types.events import Notice


@dataclass(frozen=True, slots=True)
class Fitted:
    """A spec as it can run at a place."""

    checked: Checked
    place: object | None = None
    """The engine's own word for it; None: here."""
    notices: tuple[Notice, ...] = ()
    """What is reported of the place, and of what it changed."""


def fit_here(files: Sequence[Path], overrides: Sequence[str], checked: Checked) -> Fitted:
    """A checked spec as it runs from this Python.

    Raises:
        SpecError: the spec is wrong once it is changed for this place.
    """
    spec = checked.plan.spec
    return fit_to(engine_of(spec).fit_here(spec), files, overrides, checked)


def fit_to(fit: Fit, files: Sequence[Path], overrides: Sequence[str], checked: Checked) -> Fitted:
    """A checked spec with the changes of a place. Raises SpecError as `fit_here` does."""
    changes = [change.override for change in fit.changes]
    return Fitted(check_spec(files, [*overrides, *changes]) if changes else checked, fit.place, fit.notices)
