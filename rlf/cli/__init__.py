"""The command line. The only package that prints; heavy imports happen inside the commands that need them."""

from __future__ import annotations

from rlf.cli import start

main = start.main

__all__ = ["app", "main"]


def __getattr__(name: str) -> object:
    """The commands, loaded once `rlf.cli.start` answers Ctrl-C."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rlf.cli.main import app

    globals()["main"] = start.main  # the import has put the module of that name in its place
    return app
