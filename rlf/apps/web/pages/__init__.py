"""The HTML of each place, from the functions that commands use."""

from rlf.apps.web.pages import records, runs, shared, trajectories, workbench

ROUTERS = tuple(module.router for module in (shared, runs, trajectories, records, workbench))
