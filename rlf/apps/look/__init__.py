"""Recorded runs looked at: listed, shown, followed, and their trajectories turn by turn."""
