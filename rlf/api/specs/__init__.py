"""Work with a spec before a run: check it, plan it, rehearse it."""
