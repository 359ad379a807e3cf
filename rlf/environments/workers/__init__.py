"""Programs that run in the environment of another package, with nothing of rlf."""
