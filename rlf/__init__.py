"""A declarative workbench for reinforcement learning of tool-using language models.

Each function is a command's: `rlf.run("specs/search.yaml")` is `rlf run specs/search.yaml`. Importing the package loads
nothing else; each name is fetched when it is first used. See docs/guides/python.md.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as of `typing`, which Ctrl-C would have to wait for
if TYPE_CHECKING:
    from rlf.api.python.chat import parse, render
    from rlf.api.python.evaluation import evaluate
    from rlf.api.python.rewards import score, try_rewards
    from rlf.api.python.rows import Rows
    from rlf.api.python.runs import Run, compare, list_runs, load_run, resume, run
    from rlf.api.python.specs import Check, check, plan_run
    from rlf.api.python.tools import Tool, load_tools, try_tools
    from rlf.core.errors import RlfError, RunError, SpecError
    from rlf.types.score import Scored
    from rlf.types.trajectory import Trajectory

__version__ = "0.1.0"

_HOMES = {
    "api.python.specs": ("Check", "check", "plan_run"),
    "api.python.runs": ("Run", "compare", "list_runs", "load_run", "resume", "run"),
    "api.python.evaluation": ("evaluate",),
    "api.python.rows": ("Rows",),
    "api.python.tools": ("Tool", "load_tools", "try_tools"),
    "api.python.rewards": ("score", "try_rewards"),
    "api.python.chat": ("parse", "render"),
    "core.errors": ("RlfError", "RunError", "SpecError"),
    "types.score": ("Scored",),
    "types.trajectory": ("Trajectory",),
}

__all__ = [
    "Check",
    "RlfError",
    "Rows",
    "Run",
    "RunError",
    "Scored",
    "SpecError",
    "Tool",
    "Trajectory",
    "__version__",
    "check",
    "compare",
    "evaluate",
    "list_runs",
    "load_run",
    "load_tools",
    "parse",
    "plan_run",
    "render",
    "resume",
    "run",
    "score",
    "try_rewards",
    "try_tools",
]


def __getattr__(name: str) -> object:
    import importlib

    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
