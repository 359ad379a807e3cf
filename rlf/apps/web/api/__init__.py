"""`/api/v1`: each area of the page as JSON, with its routes in a module of its own."""

from rlf.apps.web.api import compare, jobs, live, parts, runs, specs, trajectories

AREAS = (runs, trajectories, compare, live, specs, jobs, parts)
"""Modules with a function `routes` that registers an area's routes on a site."""
