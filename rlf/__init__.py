"""A declarative workbench for reinforcement learning of tool-using language models.

Each function is a command's: `rlf.run("specs/search.yaml")` is `rlf run specs/search.yaml`. Importing the package loads
nothing else; each name is fetched when it is first used, and those of an app are there as long as its folder is. See
docs/guides/python.md.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as of `typing`, which Ctrl-C would have to wait for
if TYPE_CHECKING:
    from rlf.apps.compare.python import compare
    from rlf.apps.evaluate.python import evaluate
    from rlf.apps.formats.python import parse, render
    from rlf.apps.keep.python import export
    from rlf.apps.rewards.scoring import score, try_rewards
    from rlf.apps.serve.serve import serve
    from rlf.apps.sweep.python import sweep
    from rlf.apps.tools.trials import try_tools
    from rlf.core.errors import RlfError, RunError, SpecError
    from rlf.python.runs import Rows, Run, list_runs, load_run, resume, run
    from rlf.python.specs import Check, Tool, check, load_tools, plan_run
    from rlf.types.score import Scored
    from rlf.types.trajectory import Trajectory

__version__ = "0.1.0"

_HOMES = {
    "python.specs": ("Check", "Tool", "check", "load_tools", "plan_run"),
    "python.runs": ("Rows", "Run", "list_runs", "load_run", "resume", "run"),
    "apps.compare.python": ("compare",),
    "apps.evaluate.python": ("evaluate",),
    "apps.formats.python": ("parse", "render"),
    "apps.rewards.scoring": ("score", "try_rewards"),
    "apps.serve.serve": ("serve",),
    "apps.sweep.python": ("sweep",),
    "apps.keep.python": ("export",),
    "apps.tools.trials": ("try_tools",),
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
    "export",
    "list_runs",
    "load_run",
    "load_tools",
    "parse",
    "plan_run",
    "render",
    "resume",
    "run",
    "score",
    "serve",
    "sweep",
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
