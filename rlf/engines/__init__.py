"""Engines bring a policy and an update step; everything else of a run is shared."""
