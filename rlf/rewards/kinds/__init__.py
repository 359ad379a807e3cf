"""Kinds of reward term by name; each file holds the YAML keys of one `kind`."""
