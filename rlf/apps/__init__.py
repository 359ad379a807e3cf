"""Features that a run does without: each folder has its command and its functions, and may be deleted."""
