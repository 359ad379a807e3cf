"""What the keys of a spec mean: its models applied to a tree, and the same models as schema and reference."""
