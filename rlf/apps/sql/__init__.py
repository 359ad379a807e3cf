"""Databases: a tool that reads one, and worlds that are one for each trajectory."""
