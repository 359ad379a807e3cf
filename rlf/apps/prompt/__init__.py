"""Prompt search: the system message and tool descriptions of a spec, on its own tasks and rewards."""
