"""Functions of every type that people write, for `test_python_types`."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NotRequired, Optional, Required, TypedDict
from uuid import UUID

from pydantic import BaseModel, Field, field_validator

if TYPE_CHECKING:
    from nowhere import Client


class Point(BaseModel):
    x: int
    y: float = 0.0


@dataclass
class Box:
    low: Point
    tags: set[str] = field(default_factory=set)


class Pair(NamedTuple):
    left: int
    right: str = "b"


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Deep(TypedDict, total=False):
    day: Required[date]
    word: str


class Options(TypedDict):
    when: NotRequired[date]
    deep: Deep


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("an even number is needed")
        return number


def show(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"


def take_model(value: Point) -> str:
    return show(value)


def take_dataclass(value: Box) -> str:
    return show(value)


def take_named_tuple(value: Pair) -> str:
    return show(value)


def take_enum(value: Color) -> str:
    return show(value)


def take_int_enum(value: Level) -> str:
    return show(value)


def take_date(value: date) -> str:
    return show(value)


def take_datetime(value: datetime) -> str:
    return show(value)


def take_time(value: time) -> str:
    return show(value)


def take_timedelta(value: timedelta) -> str:
    return show(value)


def take_uuid(value: UUID) -> str:
    return show(value)


def take_path(value: Path) -> str:
    return show(value)


def take_decimal(value: Decimal) -> str:
    return show(value)


def take_bytes(value: bytes) -> str:
    return show(value)


def take_set(value: set[int]) -> str:
    return show(sorted(value)) if isinstance(value, set) else show(value)


def take_tuple(value: tuple[int, date]) -> str:
    return show(value)


def take_typed_dict(value: Options) -> str:
    return show(value)


def take_models(value: list[Point]) -> str:
    return show(value)


def take_optional_model(value: Optional[Point] = None) -> str:  # noqa: UP045 - as people write it
    return show(value)


def take_models_by_name(value: dict[str, Point]) -> str:
    return show(value)


def take_tree(value: Node) -> str:
    return show(value.children[0])


def take_even(value: Even) -> str:
    return show(value)


def take_literal(value: Literal["a", 1]) -> str:
    return show(value)


def take_plain(value: Sequence[int]) -> str:
    return show(value)


async def take_later(value: Point) -> str:
    return show(value)


def take_much(a: str, b: str, c: str, d: str, e: str, f: str) -> str:
    return show((a, b, c, d, e, f))


def default_date(value: date = date(2020, 1, 1)) -> str:
    return show(value)


def default_field(value: int = Field(3, ge=1, description="how many")) -> str:
    return show(value)


def default_within(value: Annotated[date, Field(default=date(2020, 1, 1))]) -> str:
    return show(value)


def positional(value: int, other: date = date(2020, 1, 1), /, *, color: Color = Color.RED) -> str:
    """Takes two by position."""
    return show((value, other, color))


@functools.lru_cache
def cached(value: date) -> str:
    """Keeps its results."""
    return show(value)


def search(api_key: str, value: Color, client: Client | None = None) -> str:
    """Finds."""
    return show((api_key, value, client))


bound = functools.partial(search, api_key="sk-0")


class Engine:
    """An engine that is made with its index."""

    def __init__(self, index: str = "main") -> None:
        self.index = index

    def find(self, value: Annotated[date, "the day"]) -> str:
        """Finds by day."""
        return show((self.index, value))

    def __call__(self, value: Point) -> str:
        return show((self.index, value))


engine = Engine("other")
find = engine.find


def misspelt(value: date) -> str:
    return value.isofromat()


def untold(value: int) -> object:
    return object()


def give(kind: str) -> Any:
    return {
        "model": Point(x=1),
        "dataclass": Box(Point(x=1), {"b", "a"}),
        "named tuple": Pair(1),
        "enum": Color.RED,
        "date": date(2020, 1, 2),
        "datetime": datetime(2020, 1, 2, 3),
        "duration": timedelta(seconds=90),
        "decimal": Decimal("1.10"),
        "uuid": UUID(int=1),
        "path": Path("a/b"),
        "bytes": b"h\xc3\xa9",
        "binary": {"a": b"\xff"},
        "set": {10, 9, 8},
        "deque": deque([1]),
        "keys": {date(2020, 1, 1): {Color.RED: (Decimal(1),)}},
        "nested": [{"of": [Color.BLUE, Node(name="a", children=[Node(name="b")])]}],
        "tuple keys": {(1, 2): 3},
        "unknown": {"of": object()},
    }[kind]
