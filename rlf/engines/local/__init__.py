"""`engine: {kind: local}`: torch and transformers in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from rlf.core import Fault, RlfError
from rlf.core.process import usable_cores
from rlf.engines.engine import SERVED, Engine, EngineRun, HostSettings, Opening
from rlf.plan.estimate import EngineReport, ModelShape
from rlf.plan.warnings import Unread, find_written
from rlf.spec.engines import Feature
from rlf.spec.paths import SOLUTIONS, TEACHER

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.spec import LoadedSpec, RunSpec
    from rlf.types.policy import Host

__all__ = ["Local"]

_MAX_THREADS = 8


class Local(Engine):
    """The embedded engine, on a CPU or on one GPU."""

    TITLE: ClassVar[str] = "the local engine"
    SERVES: ClassVar[bool] = True
    WITHOUT_EFFECT: ClassVar[tuple[str, ...]] = ("threads", "outage_s")
    """Each micro-batch is computed on one core and their gradients are added in order, so the number of threads changes
    no bit; an outage is waited for or ends the run, and changes no result."""
    LACKS: ClassVar[Mapping[Feature, str]] = {
        Feature.IMAGES: "the local engine trains text models only",
        Feature.REHEARSAL: "it runs here anyway",
    }

    kind: Literal["local"] = "local"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU when there is one."""
    threads: int | None = Field(None, ge=1)
    """CPU cores that the update uses; None takes them all, at most 8. The result is the same for any number."""
    share_prefixes: bool = True
    """Whether the update computes what trajectories of a micro-batch begin with in common once: a group's prompt, equal
    first turns. false: each trajectory by itself, with padding. Gradients are equal to 1e-6, not bit for bit."""
    gradient_checkpointing: bool = False
    """Whether the backward pass computes each layer again and holds its input alone: a third more work, for contexts of
    many thousand tokens."""
    outage_s: float = Field(600.0, ge=0)
    """How long the run waits for a tool or a reward term that is down, where it breaks more than an eighth of a step,
    or for what breaks more than half: those trajectories are played again when it answers. After this time the run
    saves a checkpoint and ends as failed; `rlf resume` continues it."""

    @property
    def num_threads(self) -> int:
        """The cores that the update uses on this machine."""
        return self.threads or min(_MAX_THREADS, usable_cores())

    def find_warnings(self, loaded: LoadedSpec) -> Iterator[Fault]:
        """Warnings about keys that have no effect on a GPU."""
        if self.device == "cuda":
            yield from find_written(loaded, Unread(("engine",), ("threads",), "device is cuda. Remove it."))

    def try_out(self, loaded: LoadedSpec) -> tuple[list[Fault], list[Fault]]:
        """Faults of demonstrations, which may be no rows or not writable in the model's format; and of a teacher."""
        estimator, faults = loaded.spec.train.algorithm, list[Fault]()
        solutions, teacher = (getattr(estimator, path[-1], None) for path in (SOLUTIONS, TEACHER))
        if loaded.spec.data.demonstrations is None and solutions is None and teacher is None:
            return [], []
        from rlf.training.harness import find_unwritable, import_app

        faults += find_unwritable(loaded)
        try:
            if solutions is not None:
                import_app(".".join(SOLUTIONS), "demos", "rows").load_solutions(solutions)
        except RlfError as error:
            faults.append(loaded.fault(SOLUTIONS, str(error)))
        if teacher is not None:
            found = import_app(".".join(TEACHER), "demos", "teaching").find_other_tokens
            faults += [loaded.fault(TEACHER, words) for words in found(loaded.spec.model.path, teacher)]
        return faults, []

    def report(
        self, spec: RunSpec, shape: ModelShape | None, folder: Path, *, gpu_bytes: int | None, num_eval_rows: int
    ) -> EngineReport:
        """The memory of its process, and its checkpoints."""
        from rlf.engines.local.memory import estimate_disk, estimate_memory

        if shape is None:
            return EngineReport()
        on_gpu = gpu_bytes is not None or self.device == "cuda"
        memory = estimate_memory(
            spec,
            shape,
            on_gpu=on_gpu,
            num_eval_rows=num_eval_rows,
            threads=self.num_threads,
            gradient_checkpointing=self.gradient_checkpointing,
        )
        return EngineReport(memory, disk=estimate_disk(spec, shape, on_gpu=on_gpu), disk_folder=folder)

    def open(self, opening: Opening) -> EngineRun:
        """A run in this process."""
        from rlf.engines.local.engine import LocalEngine

        return LocalEngine(
            opening,
            device=self.device,
            threads=self.num_threads,
            share_prefixes=self.share_prefixes,
            gradient_checkpointing=self.gradient_checkpointing,
            outage_s=self.outage_s,
        )

    def load_host(self, path: str, settings: HostSettings = SERVED) -> tuple[Host, PreTrainedTokenizerBase]:
        """Loads the model, on the GPU if there is one."""
        from rlf.engines.local.restored import load_host

        return load_host(path, settings, device=self.device)

    def find_damage(self, checkpoint: Path, sha256: str) -> str | None:
        """The damage that the checkpoint's manifest shows."""
        from rlf.engines.saved_model import find_file_damage

        return find_file_damage(checkpoint, sha256)

    def save_checkpoint_model(self, model: Mapping[str, Any], checkpoint: Path, target: Path) -> None:
        """The weights of a checkpoint, in the model that the run began with."""
        from rlf.engines.local.restored import save_checkpoint_model

        save_checkpoint_model(model, checkpoint, target)

    def copy_checkpoint(self, checkpoint: Path, folder: Path) -> tuple[Path, str]:
        """The same state, before an evaluation."""
        from rlf.engines.local.restored import copy_checkpoint

        return copy_checkpoint(checkpoint, folder / "checkpoints")
