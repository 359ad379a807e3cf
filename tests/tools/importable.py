"""What a module of tools may hold: callables of every sort, types, aliases and what is no tool."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

Json = dict[str, Any]
loads = json.loads
encoder = json.JSONEncoder()


class Color(Enum):
    RED = "red"


@dataclass
class Box:
    color: Color


def _counted(function: Callable[..., Any]) -> int:
    return 1


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _unnamed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__doc__ = function.__doc__
    return call


def typed(box: Box) -> Color:
    """Takes a box."""
    return box.color


def odd(thing: type("Odd", (), {})) -> str:  # type: ignore[valid-type]
    """Takes what JSON has no word for."""
    return str(thing)


def silent(query: str) -> str:
    return query


@functools.lru_cache
def cached(day: date) -> str:
    """Keeps its results."""
    return day.isoformat()


@_named
def wrapped(query: str) -> str:
    """Is wrapped."""
    return query


@_unnamed
def hidden(query: str) -> str:
    """Is wrapped without its signature."""
    return query


bound = functools.partial(typed)


class Keeper:
    """Keeps."""

    def find(self, query: str) -> str:
        """Finds."""
        return query

    def __call__(self, query: str) -> str:
        return query


class Plain: ...


find = Keeper().find
keeper = Keeper()


@_counted
def counted() -> None: ...
