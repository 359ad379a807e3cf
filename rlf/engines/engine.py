"""The interface between commands and any engine; a spec and a plan use `rlf.spec.models` and `rlf.plan.estimate`.

A folder of `rlf.engines` holds one `Engine` in its `__init__.py`, whose fields are the keys of `engine`. Importing that
loads neither torch nor Ray: what runs is imported by the methods that run it.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from rlf.core import Fault, RlfError
from rlf.core.identity import hash_path
from rlf.plan import Plan
from rlf.plan.estimate import PlannedEngine
from rlf.spec import LoadedSpec, RunSpec
from rlf.spec.engines import Feature
from rlf.spec.model_files import model_location
from rlf.spec.models import Schedule
from rlf.types.events import EventSink, Notice
from rlf.types.policy import Host
from rlf.types.score import Scored
from rlf.types.task import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.chat.format import ChatFormat
    from rlf.training.harness import Traffic


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of a run, loaded and checked."""

    model_path: str
    """A folder or a Hugging Face id; `builtin:` names are resolved."""
    train: Sequence[Task]
    evaluation: Sequence[Task]
    """Empty: no evaluation."""

    @classmethod
    def of(cls, spec: RunSpec, train: Sequence[Task], evaluation: Sequence[Task]) -> Inputs:
        """The inputs of a spec whose rows were read. Resolves the model's name."""
        return cls(model_location(spec.model.path), train, evaluation[: spec.eval.limit])

    def read(self) -> Inputs:
        """The same with every row read. Raises SpecError where one changed and is wrong now."""
        return Inputs(self.model_path, list(self.train), list(self.evaluation))


def load_inputs(plan: Plan) -> Inputs:
    """Loads the datasets. Raises SpecError where a row or column is wrong."""
    data, declared = plan.spec.data, plan.spec.tool_names
    from rlf.data import load_tasks

    train = load_tasks(**data.train.model_dump(), declared=declared)
    evaluation = [] if data.eval is None else load_tasks(**data.eval.model_dump(), declared=declared)
    return Inputs.of(plan.spec, train, evaluation)


@dataclass(frozen=True, slots=True)
class Opening:
    """All that an engine needs to open a run."""

    plan: Plan
    inputs: Inputs
    folder: Path
    """The run's."""
    emit: EventSink
    """Takes every event, in order."""
    flush: Callable[[], None]
    """Returns when every event emitted so far is safe."""
    traffic: Traffic
    """What happens to tool calls on their way."""
    place: object | None = None
    """Of a `Fit`; None: here."""
    encode: Callable[[Scored], object] | None = None
    """Makes what the lineage stores of a trajectory, in any process; None: the lineage makes it as it writes."""


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


@dataclass(frozen=True, slots=True)
class SpecChange:
    """One value of a spec that a place replaces."""

    key: str
    value: Any
    reason: str

    @property
    def override(self) -> str:
        """`key=value`, as on a command line."""
        return f"{self.key}={json.dumps(self.value)}"


@dataclass(frozen=True, slots=True)
class RehearsalReport:
    """A rehearsal's results beside its stages."""

    changes: tuple[SpecChange, ...]
    """What was replaced, of the spec and for the machine."""
    not_covered: tuple[str, ...]
    """What no rehearsal shows."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The changes that a spec needs at a place."""

    changes: tuple[SpecChange, ...] = ()
    """What the spec has to change for it."""
    notices: tuple[Notice, ...] = ()
    """What is reported of it when the run starts."""
    place: object | None = None
    """The engine's own word for the place, for `Engine.open`; None: here."""


class EngineRun(Protocol):
    """One run, from its start or from a checkpoint to its end."""

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
        """CPU cores that the update uses; 0 where the engine does not decide it."""

    def go_back(self, start: Start, last_step: int) -> None:
        """Restores the state from which the run continues.

        Args:
            last_step: the last step in the lineage.
        """

    def leave_job(self) -> None:
        """Lets a job that outlives this process continue when the run is cancelled: another process follows it now."""

    async def run(self) -> None:
        """Runs to the last step, emitting every event. Cancelled, it leaves nothing running and re-raises."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """How a model is loaded for use."""

    num_slots: int = 32
    """Conversations sampled at once; further open ones wait in their order."""
    max_tokens: int | None = None
    """Of a whole conversation, for which the cache is reserved; None: it grows as it is needed."""
    schedule: Schedule = Schedule.CLOCK
    """When rows rejoin the batch. Under `logical` and `invariant` the model is held as in training, and the same
    questions give the same tokens, bit for bit."""
    may_wait: bool = True
    """Whether all rows may wait for one, where the machine has no `invariant` schedule."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What is computed in, as in `model.dtype`."""


SERVED = HostSettings()


class Engine(PlannedEngine):
    """An engine that can be chosen by `engine.kind`."""

    SERVES: ClassVar[bool] = False
    """Whether `load_host` has a host for models."""
    HAS_NEWER_STATE: ClassVar[bool] = False
    """Whether a resumed run may continue from a newer state than the checkpoints in the lineage."""
    COUNTS_LEFT_OUT: ClassVar[bool] = False
    """Whether the advantages of a step count stand-ins for the trajectories that are left out of it."""

    def look(self, loaded: LoadedSpec, train: Sequence[Task], evaluation: Sequence[Task]) -> Iterator[Fault]:
        """Finds the faults that only the model, the data and this machine show. Fetches and starts nothing."""
        yield from ()

    def try_out(self, loaded: LoadedSpec) -> tuple[list[Fault], list[Fault]]:
        """Finds the faults and warnings that need a process; called for a spec without other faults."""
        return [], []

    def fit_here(self, spec: RunSpec) -> Fit:
        """The changes that a spec needs to run in this process's environment, and what is reported."""
        return Fit()

    def fit_rehearsal(self, spec: RunSpec, *, vllm: bool) -> Fit:
        """The same for the environment of rehearsals.

        Args:
            vllm: whether vLLM itself samples, and not its stand-in.

        Raises:
            RlfError: that place is not made yet.
        """
        raise NotImplementedError(f"engine {self.kind} lacks {Feature.REHEARSAL}")

    def rehearse(self, loaded: LoadedSpec, reach: Callable[[str, str], None], *, vllm: bool) -> RehearsalReport:
        """Runs a checked spec there for two small steps.

        Args:
            reach: takes each stage that has worked: its name and words.
            vllm: as for `fit_rehearsal`.

        Raises:
            RlfError: the place of rehearsals is not made yet.
            RunError: the job failed.
        """
        raise NotImplementedError(f"engine {self.kind} lacks {Feature.REHEARSAL}")

    @classmethod
    def make_rehearsals(cls, *, vllm: bool, tell: Callable[[str], None]) -> tuple[Path, Path]:
        """Makes the environment of rehearsals if missing; returns its folder, and the command that starts rlf in it."""
        raise NotImplementedError(f"{cls} lacks {Feature.REHEARSAL}")

    @abstractmethod
    def open(self, opening: Opening) -> EngineRun:
        """Builds a run, new or to be continued. Writes nothing yet.

        Raises:
            RlfError: it cannot run here, or a part of it cannot be built.
        """

    def load_host(self, path: str, settings: HostSettings = SERVED) -> tuple[Host, PreTrainedTokenizerBase]:
        """A model of this machine to be used as it is, with its tokenizer. Raises RlfError where it does not load."""
        raise NotImplementedError(f"engine {self.kind} serves no model")

    def trained_reward(self, reward: float) -> float:
        """A recorded reward as advantages are computed from it."""
        return reward

    def checkpoints_in(self, folder: Path) -> Path:
        """The folder that holds all checkpoints of a run. Args: folder: the run's."""
        return folder

    def find_damage(self, checkpoint: Path, sha256: str) -> str | None:
        """The damage to a checkpoint, in words; None where it is whole, or on a disk that is not seen here."""
        if not checkpoint.exists():
            return "it is gone"
        return None if hash_path(checkpoint) == sha256 else "it differs from what was written"

    def models_in(self, folder: Path, last_step: int) -> dict[int, Path]:
        """The Hugging Face folders that a run has written, by step: its final model, at least."""
        return {last_step: folder / "model"} if (folder / "model" / "config.json").is_file() else {}

    def save_checkpoint_model(self, model: Mapping[str, Any], checkpoint: Path, target: Path) -> None:
        """Writes the model of a checkpoint as the run would have written it at its end.

        Args:
            model: the plan's `model` section as JSON values.

        Raises:
            RlfError, RunError: the model that the run began with does not load, or does not fit the checkpoint.
        """
        raise NotImplementedError(f"engine {self.kind} lacks {Feature.CHECKPOINT_MODELS}")

    def copy_checkpoint(self, checkpoint: Path, folder: Path) -> tuple[Path, str]:
        """Copies a checkpoint into another run's folder as the state that it starts from; the copy with its hash."""
        raise NotImplementedError(f"engine {self.kind} lacks {Feature.BRANCHES}")


def engine_of(spec: RunSpec) -> Engine:
    """The engine of a spec. Raises RlfError for one from a package that can be planned and not run."""
    if not isinstance(spec.engine, Engine):
        raise RlfError(f"engine {spec.engine.kind}: {type(spec.engine).__name__} is not an rlf.engines.engine.Engine.")
    return spec.engine
