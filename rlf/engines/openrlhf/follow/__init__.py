"""Turns spool and output into the events of a run while it runs."""

__all__: list[str] = []
