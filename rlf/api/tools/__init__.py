"""What the `tools` commands do."""
