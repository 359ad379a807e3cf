"""Declarations made of what others describe: a module for each kind of document. Pure: `api` reads and writes."""

__all__: list[str] = []
