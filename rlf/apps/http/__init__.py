"""Tools that are HTTP services: a request for a call, or for calls of many trajectories."""
