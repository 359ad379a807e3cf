"""The HTML of each place, from the functions that commands use."""

from rlf.apps.web.pages import compare, curves, records, runs, shared, specs, trajectories, workbench

ROUTERS = tuple(module.router for module in (shared, runs, trajectories, compare, curves, records, specs, workbench))
