"""Work that runs code of the user's, each time in a process of its own, so that edited code is seen."""
