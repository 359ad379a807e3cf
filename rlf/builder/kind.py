"""A kind of builder: the keys of `build:`, and the tasks it makes, world by world."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import PrivateAttr

from rlf.builder.shape import Shape
from rlf.builder.task import Task, read_task
from rlf.core import Registry
from rlf.core.kinds import Kind


@dataclass(frozen=True, slots=True)
class Part:
    """Tasks that are built and proven together, with the tools they need: a world, or a batch of seeds."""

    name: str
    tasks: tuple[Task, ...]
    tools: tuple[Mapping[str, Any], ...]
    """Declarations, with `target` and `tests`."""
    codes: Mapping[str, str]
    """Python source of each tool's function."""
    figures: Mapping[str, Mapping[str, float]]
    """Sums over the tasks, by scenario: what each policy comes to."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Tasks that were made and not kept, by stage and reason."""
    data: str = ""
    """SQL that makes the part's tables; empty where the code holds its data."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Requests, tokens and US dollars of the part."""

    def to_json(self) -> dict[str, Any]:
        """The part as JSON, which `read_part` reads."""
        own = {name: getattr(self, name) for name in ("name", "tools", "codes", "data", "figures", "dropped", "spent")}
        return own | {"tasks": [task.row() for task in self.tasks]}


def read_part(value: Mapping[str, Any]) -> Part:
    """The part of a JSON value that `Part.to_json` made."""
    tasks = tuple(read_task(row) for row in value["tasks"])
    return Part(**{**value, "tasks": tasks, "tools": tuple(value["tools"])})


class Maker(Protocol):
    """A builder at work."""

    names: Sequence[str]
    """The parts, in order."""

    def make(self, name: str) -> Part:
        """A part, which depends on the settings alone. Raises RlfError."""
        ...


class BuildKind(Kind, ABC):
    """The `build:` of a build file. Fields are its YAML keys."""

    chosen_by: ClassVar[str] = "kind"
    kind: str
    """Who makes the tasks."""
    seed: int = 0
    """Where all that is drawn begins: the same seed builds the same tasks."""
    count: int
    """Number of tasks."""

    _folder: Path = PrivateAttr(Path())

    def model_post_init(self, context: Any) -> None:
        """Keeps the folder of the build file: files are named from there, and written as they are named."""
        self._folder = (context or {}).get("folder", Path())

    @abstractmethod
    def estimate(self, shape: Shape) -> dict[str, float]:
        """Counts and cost before anything is built, by name. Raises RlfError for what cannot be built."""

    @abstractmethod
    def open(self, shape: Shape, folder: Path) -> AbstractContextManager[Maker]:
        """Opens the maker of the parts. Raises RlfError.

        Args:
            folder: where work that is under way is kept, so that it is not done twice.
        """

    @abstractmethod
    def source_hash(self) -> str:
        """sha256 of the files that decide what is built, beside the build file."""

    @property
    def env(self) -> Mapping[str, str] | None:
        """The `env:` of the world's spec; None where its tools keep no state."""
        return None

    @abstractmethod
    def code_files(self, codes: Mapping[str, str]) -> dict[str, str]:
        """The files of Python that the tools' targets name, by their path within the world."""


BUILD_KINDS: Registry[BuildKind] = Registry(
    "build kind",
    "rlf.builder.kinds",
    BuildKind,  # type: ignore[type-abstract]  # compared with, never instantiated
)
