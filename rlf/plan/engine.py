"""The part of an engine that plans use: faults and warnings of a spec under it, and the size of its runs.

Pure: nothing here opens a file. What a run asks is in `rlf.engines.engine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlf.core import Fault, RlfError
from rlf.plan.estimate import GpuMemory, Memory
from rlf.plan.model_shape import ModelShape
from rlf.spec import LoadedSpec, RunSpec
from rlf.spec.engine import EngineSpec


@dataclass(frozen=True, slots=True)
class EngineReport:
    """An engine's report on a plan before it runs."""

    memory: Memory | None = None
    """Of one process; None where the engine has several, or the model's sizes are not known."""
    gpus: tuple[GpuMemory, ...] = ()
    """Each kind of GPU of a job; empty for one process, and where sizes are not known."""
    machine: Memory | None = None
    """What each machine of a job holds beside its GPUs; None where it is one process, or sizes are not known."""
    num_gpus: int = 0
    """GPUs of the whole job; 0 for one process."""
    disk: Memory | None = None
    """What it writes beside the lineage, at its fullest; None where sizes are not known."""
    disk_folder: Path | None = None
    """Where it writes that; None where only other machines see it."""
    argv: tuple[str, ...] = ()
    """The options that the job is started with; empty for an engine without any."""


class PlannedEngine(EngineSpec):
    """An engine as plans see it."""

    def find_faults(self, loaded: LoadedSpec) -> Iterator[Fault]:
        """Faults of a spec that it cannot honour, beside its `LACKS`."""
        yield from ()

    def find_warnings(self, loaded: LoadedSpec) -> Iterator[Fault]:
        """Warnings where it does otherwise than a reader of the spec may think."""
        yield from ()

    def report(
        self, spec: RunSpec, shape: ModelShape | None, folder: Path, *, gpu_bytes: int | None, num_eval_rows: int
    ) -> EngineReport:
        """Estimates a run, as far as there are formulas.

        Args:
            shape: the model's sizes; None where they are not known.
            folder: the run's.
            gpu_bytes: size of one GPU; None: not known, or a CPU.
            num_eval_rows: questions of the evaluation set.
        """
        return EngineReport()


def planned_engine(spec: RunSpec) -> PlannedEngine:
    """The engine of a spec. Raises RlfError for one from a package that holds settings alone."""
    if not isinstance(spec.engine, PlannedEngine):
        raise RlfError(f"engine {spec.engine.kind}: {type(spec.engine).__name__} derives from no rlf.engines.Engine.")
    return spec.engine
