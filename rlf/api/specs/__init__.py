"""What commands ask of a spec before a run: check it, plan it, rehearse it."""
