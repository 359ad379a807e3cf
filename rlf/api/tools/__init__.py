"""The work of the `tools` commands."""
