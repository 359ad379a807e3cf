"""Faults and warnings of OpenRLHF, from the spec, from model and data, and from its own parser."""

__all__: list[str] = []
