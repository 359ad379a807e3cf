"""A user's class as a world: which methods are tools, what its reset takes, what its scores are.

Classes written for TRL's `environment_factory` are such classes: `reset(**columns)`, public methods as tools, and an
attribute `reward`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MethodType
from typing import Any

from rlf.core import RlfError, nearest
from rlf.tools.python.inference import describe_function
from rlf.types import Task, ToolCall, ToolDescription

LIFE = ("reset", "reply", "score", "gold", "state", "snapshot", "restore", "close")
"""Methods that rlf calls by itself; none of them is a tool."""
REWARD = "reward"
"""The attribute that is the score of a class without `score`."""
DONE = "done"
"""The attribute that says that the episode is over, of a class that has it."""

REFUSALS = (ValueError, TypeError, LookupError, ArithmeticError, PermissionError)
"""Exceptions of a tool's method about its arguments: the model reads them. All others are the world's own failures."""


def tool_names(made_by: type[Any]) -> list[str]:
    """Public methods of a class without its lifecycle methods, in the order of their definition."""
    names: dict[str, None] = {}
    for known in reversed(made_by.__mro__[:-1]):
        for name, member in vars(known).items():
            if not name.startswith("_") and name not in LIFE and inspect.isfunction(member):
                names[name] = None
    return list(names)


def describe_methods(made_by: type[Any], called: str, chosen: tuple[str, ...] | None) -> list[ToolDescription]:
    """The tools of a class, from hints and docstrings.

    Args:
        called: what messages call the class.
        chosen: names of the methods that are tools; None: all public ones.

    Raises:
        RlfError: there is no such method, or its signature or docstring does not say enough.
    """
    known = tool_names(made_by)
    for name in chosen or ():
        if name not in known:
            raise RlfError(
                f"{called} has no method {name!r} that can be a tool{nearest(name, known)} "
                f"(known: {', '.join(known) or 'none'}). Write one of these."
            )
    return [_describe(name, made_by, f"{called}.{name}") for name in chosen or known]


def _describe(name: str, made_by: type[Any], called: str) -> ToolDescription:
    described = describe_function(MethodType(getattr(made_by, name), made_by), called)
    if not described.description:
        raise RlfError(f"{called} has no docstring, which the model reads. Write one, or rename it with a leading `_`.")
    return ToolDescription(name, described.description, described.input_schema)


def reset_arguments(reset: Callable[..., Any], task: Task, seed: int) -> dict[str, Any]:
    """The arguments of a bound `reset`: `task`, `seed`, and the row's columns by name, all of them for `**`."""
    offered: Mapping[str, Any] = {**task.columns, "task": task, "seed": seed}
    parameters = inspect.signature(reset).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        named = {name: offered[name] for name in ("task", "seed") if name in parameters}
        return {**task.columns, **named}
    return {name: offered[name] for name in parameters if name in offered}


def missing_columns(made_by: Callable[..., Any], columns: Collection[str]) -> list[str]:
    """Parameters of `reset` that have no default, and that rows lack."""
    reset = getattr(made_by, "reset", None)
    if reset is None:
        return []
    parameters = list(inspect.signature(reset).parameters.values())[1:]
    taken = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = [one.name for one in parameters if one.default is one.empty and one.kind not in taken]
    return [name for name in needed if name not in ("task", "seed", *columns)]


def sets_reward(made_by: type[Any]) -> bool:
    """Whether a class may set the attribute `reward`."""
    try:
        return hasattr(made_by, REWARD) or f"self.{REWARD}" in inspect.getsource(made_by)
    except (OSError, TypeError):  # made at run time, so that only playing shows it
        return True


def to_scores(value: Any, instance: Any) -> dict[str, float]:
    """The values of `score` by name; a bare number is `score`, and `reward` stands in where there is none."""
    if value is None and hasattr(instance, REWARD):
        return {REWARD: float(getattr(instance, REWARD))}
    if value is None:
        raise TypeError("got None; expected a number, a mapping of numbers, or an attribute `reward`")
    if isinstance(value, Mapping):
        return {str(name): float(number) for name, number in value.items()}
    return {"score": float(value)}


def to_actions(value: Any) -> tuple[ToolCall | str, ...] | None:
    """The solution of a task, from texts and calls; None where it is not known. Raises TypeError for anything else."""
    if value is None:
        return None
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"got {value!r:.80}; expected a list of answers and of calls with `name` and `arguments`")
    return tuple(map(_to_action, value))


def _to_action(value: Any) -> ToolCall | str:
    if isinstance(value, str | ToolCall):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return ToolCall(value["name"], value.get("arguments") or {})
    raise TypeError(f"got {value!r:.80}; expected an answer as text, or a call with `name` and `arguments`")
