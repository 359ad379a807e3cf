"""A spec's chat format as commands show it."""
