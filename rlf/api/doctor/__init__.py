"""What `rlf doctor` finds."""
