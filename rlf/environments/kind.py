"""A kind of world: the keys of `env:`, what its tools are called, and how worlds are made.

A kind is one file of `rlf.environments.kinds`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, PrivateAttr

from rlf.core import Registry, RlfError
from rlf.core.callables import NotRun
from rlf.core.kinds import Kind, StrictModel
from rlf.core.meter import Meter
from rlf.tools.kind import Limits
from rlf.types import ToolDescription

if TYPE_CHECKING:
    from rlf.environments.world import MakeWorld

DOCUMENTS = "tools"
"""The column of rows that bring their own tools, as documents in OpenAI's form."""


class EnvLimits(StrictModel):
    """Limits of one world's time and of the number of worlds. Waiting for a permit or for the policy does not count."""

    reset_s: float = Field(30.0, gt=0, allow_inf_nan=False)
    """Time to make a world and bring it to its first state."""
    step_s: float = Field(10.0, gt=0, allow_inf_nan=False)
    """Time of one call, and of one reply."""
    score_s: float = Field(30.0, gt=0, allow_inf_nan=False)
    """Time to score the final state."""
    episode_s: float = Field(600.0, gt=0, allow_inf_nan=False)
    """The world's own time of a whole episode: reset, steps, replies and scoring together."""
    max_concurrency: int = Field(256, ge=1)
    """Worlds that there are at once; further trajectories wait for one in their order."""
    max_output_chars: int = Field(Limits().max_output_chars, ge=100)
    """Longest result of a call that the model is shown, the marker of a cut included."""


class EnvSpec(Kind, ABC, allow_inf_nan=False):
    """The world of every trajectory. Fields are its YAML keys; `kind` selects the class."""

    chosen_by: ClassVar[str] = "kind"
    FILES: ClassVar[tuple[str, ...]] = ()
    """Keys beside `files` whose text, or list of texts, names files or folders: relative to the file that says it,
    recorded with their hashes."""

    kind: str
    """How the world is made."""
    limits: EnvLimits = EnvLimits()
    files: tuple[str, ...] = ()
    """Files that the world's own code reads, e.g. `[../data/shop.db]`, relative to the file that says so. A run records
    them with their hashes, and `rlf resume` reports an edit."""
    keep_state: bool = False
    """Whether the lineage keeps the final state whole, where the world shows one; hashes it always has."""
    _left_behind: str = PrivateAttr(default="")
    _described: tuple[ToolDescription, ...] | RlfError | None = PrivateAttr(default=None)
    _meter: Meter = PrivateAttr(default_factory=Meter)

    @property
    def meter(self) -> Meter:
        """Counts what worlds spend."""
        return self._meter

    def charge_to(self, meter: Meter) -> None:
        """Has a meter count what worlds spend from here on."""
        self._meter = meter

    @property
    def left_behind(self) -> str:
        """What resets were seen to leave behind, of worlds whose processes are used again; empty where nothing was."""
        return self._left_behind

    @property
    def speaks(self) -> bool:
        """Whether worlds may answer turns that call nothing."""
        return False

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Names of all scores; None where only playing shows them."""
        return None

    @property
    def tools(self) -> tuple[ToolDescription, ...]:
        """The world's tools as the model sees them. Raises RlfError where it cannot be known."""
        if isinstance(self._described, RlfError):
            raise self._described
        if self._described is None:
            try:
                self._described = tuple(self.describe_tools())
            except NotRun:
                raise
            except RlfError as fault:  # looking may take many seconds, and several checks ask
                self._described = fault
                raise
        return self._described

    def describe_tools(self) -> Sequence[ToolDescription]:
        """Finds the tools of worlds, which may take a while. Raises RlfError if they cannot be known."""
        return ()

    def tools_of(self, columns: Mapping[str, Any]) -> Sequence[ToolDescription] | None:
        """The tools that trajectories of a row see, where it describes them; None: all of the world's."""
        return None

    def foreign_tools(self, columns: Mapping[str, Any]) -> Collection[str]:
        """Names of the world's tools that trajectories of a row neither see nor may call."""
        return ()

    @property
    def parts(self) -> Mapping[str | None, EnvSpec]:
        """Of several worlds each by its name; else this one."""
        return {None: self}

    def part_of(self, columns: Mapping[str, Any]) -> tuple[str | None, EnvSpec]:
        """The world of a row's trajectories with its name, if it has one. Raises ValueError where there is none."""
        return None, self

    def static_complaints(self) -> list[str]:
        """The part of `complaints` that runs no user code; empty where every check runs some."""
        return []

    def complaints(self) -> list[str]:
        """Reasons why there can be no worlds, each a sentence without its full stop; empty when all is well.

        Raises:
            RlfError: the world cannot even be looked at.
        """
        return []

    def missing_columns(self, columns: Collection[str]) -> list[str]:
        """Columns that worlds need in every row and that a dataset lacks."""
        return []

    @abstractmethod
    def source_hash(self) -> str:
        """sha256 of what decides how worlds behave, as far as it can be known."""

    def contained(self) -> Self:
        """The same kind with worlds that cannot end this process, unless the spec names another place."""
        return self

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[MakeWorld]:
        """Opens what all worlds of a run share, and releases it at the end of the context. Raises RlfError."""


ENV_KINDS: Registry[EnvSpec] = Registry(
    "world kind",
    "rlf.environments.kinds",
    EnvSpec,  # type: ignore[type-abstract]  # compared with, never instantiated
)
