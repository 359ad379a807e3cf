"""Logging set-up: everything goes to stderr, results alone to stdout."""

from __future__ import annotations

import logging
import sys


def configure(verbosity: int = 0) -> None:
    """Sends rlf's log to stderr: warnings, with 1 information, with 2 debugging."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("rlf")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
