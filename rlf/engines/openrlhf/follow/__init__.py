"""Spool and output become the events of a run, while it runs."""

__all__: list[str] = []
