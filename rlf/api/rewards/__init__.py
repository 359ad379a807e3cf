"""The work of the `rewards` commands."""
