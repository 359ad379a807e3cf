"""The command line. The only package that prints; heavy imports happen inside the commands that need them."""

from rlf.cli.main import app, main

__all__ = ["app", "main"]
