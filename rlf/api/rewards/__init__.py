"""What the `rewards` commands do."""
