"""Runs beside one another: what differs between them, by how much, and whether that exceeds chance."""
