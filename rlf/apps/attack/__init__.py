"""Whether a reward pays for what is not skill."""
