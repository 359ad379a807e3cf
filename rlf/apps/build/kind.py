"""A kind of builder: the keys of `build:`, and the tasks it makes, world by world."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from rlf.apps.build.task import BuildTask, Scenario, read_task
from rlf.core import Fault, Registry, SpecError, hash_json
from rlf.core.kinds import Kind
from rlf.spec.faults import faults_of
from rlf.spec.layers import interpolate
from rlf.spec.models import Section
from rlf.spec.nodes import plain
from rlf.spec.overrides import apply_override
from rlf.spec.reader import read_file

if TYPE_CHECKING:
    from rlf.apps.build.calls import BuiltTools

# The settings of every kind of builder: shapes, lengths, dials, noise, bounds and the split.

Dial = Annotated[int, Field(ge=0, le=3)]
Share = Annotated[float, Field(ge=0, le=1)]
Range = tuple[Annotated[int, Field(ge=1, le=8)], Annotated[int, Field(ge=1, le=8)]]


class Complexity(Section):
    """How far tools are scaled, from 0 to 3 each."""

    function: Dial = 0
    """What a tool returns: 0 the value; 1 a record; 2 a record with other fields; 3 records, with former values of
    relations that are mutable."""
    parameters: Dial = 0
    """Parameters beside what is asked for: 0 none; 1 one with a default; 2 three; 3 a required one too."""
    types: Dial = 0
    """Types of parameters: 0 text; 1 enums and dates; 2 an object for the subject; 3 lists within it, and of keys."""
    toolset: Dial = 0
    """Tools beside those that a task may need: 0, 2, 4 or 8, near-synonyms of the needed ones first."""

    @property
    def num_distractors(self) -> int:
        """The number of those tools."""
        return (0, 2, 4, 8)[self.toolset]


class Noise(StrEnum):
    """Noise in the names of tools and parameters, by RoTBench's levels (arXiv:2401.08326)."""

    CLEAN = "clean"
    """Names that say what they stand for."""
    SLIGHT = "slight"
    """Characters are added, left out or replaced."""
    MEDIUM = "medium"
    """Names are reversed, or letters without sense."""
    HEAVY = "heavy"
    """Tools have each other's names, and need a parameter more."""
    UNION = "union"
    """All of these."""


class Gates(Section):
    """Bounds on policies' mean scores over all tasks."""

    gold: Share = 1.0
    """Least Solve-F1 of the gold calls; a task whose gold calls fail is dropped before."""
    null: Share = 0.0
    """Greatest Solve-F1 of a policy that does nothing."""
    no_tool: Share = 0.02
    """Greatest share of answers that the best constant guess gets right."""
    random: Share = 0.3
    """Greatest Solve-F1 of as many random calls as the task needs."""
    spam: Share = 0.4
    """Greatest Solve-F1 of calling every tool with every name of the question."""
    meaning: Share = 0.7
    """Least share of planted bad tasks that the second model catches, where `build.reviewers` names one."""


class Split(Section):
    """How tasks are divided."""

    train: Share = 0.8
    validation: Share = 0.1
    heldout: Share = 0.1
    by: tuple[Literal["world", "tools"], ...] = ("world", "tools")
    """What no two parts share: the world's things and values, the tools' names and documents. Of `kind: llm`, documents
    of needed tools may read alike, as two tasks may be of one sort; look-alikes are shared by no two parts."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if abs(sum(self.shares.values()) - 1) > 1e-9:
            total = f"{sum(self.shares.values()):g}"
            raise PydanticCustomError("split", "the shares add up to {total}; expected 1", {"total": total})
        return self

    @property
    def shares(self) -> dict[str, float]:
        """The shares by the name of the part."""
        return {"train": self.train, "validation": self.validation, "heldout": self.heldout}


class BuildShape(Section):
    """Settings of what is built, for each kind of builder."""

    scenarios: Mapping[Scenario, Share] = dict.fromkeys(Scenario, 0.25)
    """Share of each shape of task."""
    hops: Range = (2, 4)
    """Calls of a chain, at least and at most."""
    parallel: Range = (2, 3)
    """Chains side by side, at least and at most."""
    complexity: Complexity = Complexity()
    noise: Noise = Noise.CLEAN
    gates: Gates = Gates()
    split: Split = Split()

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> Self:
        for name, (low, high) in {"hops": self.hops, "parallel": self.parallel}.items():
            if not 2 <= low <= high:
                words = {"name": name, "low": low, "high": high}
                raise PydanticCustomError("range", "{name}: got [{low}, {high}]; expected [LOW, HIGH] from 2 on", words)
        if abs(sum(self.scenarios.values()) - 1) > 1e-9:
            total = f"{sum(self.scenarios.values()):g}"
            raise PydanticCustomError("scenarios", "the scenarios add up to {total}; expected 1", {"total": total})
        return self


def shares_of(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers that add up to a total, as near to the weights as can be; ties go to the first.

    >>> shares_of(10, {"a": 0.5, "b": 0.25, "c": 0.25})
    {'a': 5, 'b': 3, 'c': 2}
    """
    exact = {name: total * weight / sum(weights.values()) for name, weight in weights.items()}
    counts = {name: int(value + 1e-9) for name, value in exact.items()}
    behind = sorted(weights, key=lambda name: counts[name] - exact[name])
    for name in behind[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


@dataclass(frozen=True, slots=True)
class BuildPart:
    """Tasks that are built and proven together, with the tools they need: a world, or a batch of seeds."""

    name: str
    tasks: tuple[BuildTask, ...]
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
    meaning: Mapping[str, float] = field(default_factory=dict)
    """Tasks that a second model has judged, and those with a planted fault that it was given and caught."""

    def to_json(self) -> dict[str, Any]:
        """The part as JSON, which `read_part` reads."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "tasks"}
        return own | {"tasks": [task.row() for task in self.tasks]}


def read_part(value: Mapping[str, Any]) -> BuildPart:
    """The part of a JSON value that `Part.to_json` made."""
    tasks = tuple(read_task(row) for row in value["tasks"])
    return BuildPart(**{**value, "tasks": tasks, "tools": tuple(value["tools"])})


class Maker(Protocol):
    """A builder at work."""

    names: Sequence[str]
    """The parts, in order."""

    def make(self, name: str) -> BuildPart:
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
    def estimate(self, shape: BuildShape) -> dict[str, float]:
        """Counts and cost before anything is built, by name. Raises RlfError for what cannot be built."""

    @abstractmethod
    def open(self, shape: BuildShape, folder: Path) -> AbstractContextManager[Maker]:
        """Opens the maker of the parts. Raises RlfError.

        Args:
            folder: where work that is under way is kept, so that it is not done twice.
        """

    @abstractmethod
    def open_tools(self, folder: Path) -> AbstractAsyncContextManager[BuiltTools]:
        """Opens the tools of a world that it has built, as the files are now. Raises RlfError."""

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
    "rlf.apps.build.kinds",
    BuildKind,  # type: ignore[type-abstract]  # compared with, never instantiated
)

# The build file: the builder, what it builds, and where.


class BuildSettings(BuildShape):
    """A build file."""

    build: BuildKind
    """Who makes the tasks: `graph` without a model, `llm` with one."""
    out: str
    """Folder of the world, from the current folder on, as that of runs."""

    @property
    def sha256(self) -> str:
        """Hash of all that decides what is built: the settings but for `out`, and the files that they name."""
        return hash_json([self.model_dump(mode="json", exclude={"out"}), self.build.source_hash()])


def load_build(path: Path, overrides: Sequence[str] = ()) -> BuildSettings:
    """A build file with `key=value` overrides. Raises SpecError with its faults and their places."""
    faults: list[Fault] = []
    found = read_file(path, None, faults)
    if found is None:
        raise SpecError(faults)
    root = found[0]
    for text in overrides:
        root = apply_override(root, text, faults)
    root = interpolate(root, faults)
    try:
        settings = BuildSettings.model_validate(plain(root), context={"folder": root.folder})
    except ValidationError as error:
        raise SpecError([*faults, *faults_of(BuildSettings, root, error.errors())]) from None
    if faults:
        raise SpecError(faults)
    return settings
