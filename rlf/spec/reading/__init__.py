"""From files, overrides and the environment to one tree of values that know their places."""
