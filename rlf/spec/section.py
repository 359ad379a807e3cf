"""The base of every part of a spec: frozen, and an unknown key is a fault."""

from __future__ import annotations

from rlf.core.kinds import StrictModel


class Section(StrictModel, allow_inf_nan=False):
    """A mapping of the YAML whose keys are the fields."""
