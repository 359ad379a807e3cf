"""The meaning of a spec's keys: its models applied to a tree, and the same models as schema and reference."""
