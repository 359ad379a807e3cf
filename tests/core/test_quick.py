"""Frozen records made quickly are the records themselves."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from rlf.core.quick import quickly


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    seen: dict[str, Any] = field(default_factory=dict)


def test_what_is_made_quickly_is_what_the_class_makes() -> None:
    made = quickly(Point)(1)
    assert type(made) is Point
    assert made == Point(1) == pickle.loads(pickle.dumps(made))
    assert quickly(Point)(1, y=3, seen={"a": 1}) == Point(1, 3, {"a": 1})
    assert replace(made, y=5) == Point(1, 5)
    assert made.seen is not quickly(Point)(1).seen


def test_what_is_made_quickly_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        quickly(Point)(1).x = 2  # type: ignore[misc]  # that is what is tried
