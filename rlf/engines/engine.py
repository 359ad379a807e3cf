"""What a run needs of an engine, whichever it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rlf.chat.format import ChatFormat
from rlf.types.task import Task


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run reads, loaded and checked."""

    model_path: str
    """A folder or a Hugging Face id; `builtin:` names are resolved."""
    train: Sequence[Task]
    evaluation: Sequence[Task]
    """Empty: no evaluation."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run continues."""

    step: int
    """Updates that its model has seen."""
    checkpoint: Path | None
    """None: from the model that the run began with."""
    skipped: tuple[str, ...] = ()
    """Newer checkpoints that are damaged, in words."""
    named: bool = False
    """Whether the step was asked for: no newer state is taken."""


class Engine(Protocol):
    """One run, from its start or from a checkpoint to its end. Made of a plan, its inputs and the run's folder."""

    @property
    def chat(self) -> ChatFormat:
        """The format that the run's conversations are written in."""

    @property
    def step(self) -> int:
        """Updates made so far."""

    @property
    def place(self) -> str:
        """Where it trains, in words: `cpu`, `cuda`, `8 GPUs`."""

    @property
    def threads(self) -> int:
        """CPU cores that the update uses; 0 where that is not the engine's to say."""

    def go_back(self, start: Start, last_step: int) -> None:
        """Puts the run where it is to continue.

        Args:
            last_step: the last step in the lineage.
        """

    def leave_job(self) -> None:
        """Lets a job that outlives this process continue when the run is cancelled: another process follows it now."""

    async def run(self) -> None:
        """Runs to the last step, emitting every event. Cancelled, it leaves nothing running and re-raises."""
