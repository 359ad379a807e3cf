"""`engine: {kind: openrlhf}`: the same plan as a job of OpenRLHF, on Ray, vLLM and DeepSpeed.

Each module knows only those above it in this list:

    settings            the keys of `engine`, and how a plan lies on GPUs
    job, dataset        the job folder and what lies in it: launches, checkpoints, rows
    argv, supervised    a plan becomes options; of its supervised trainer where every step imitates, with rows
    flags, emit         OpenRLHF's own parser takes them (`parse`); the files of a job
    estimates, faults   memory and disk, before anything runs; what OpenRLHF cannot honour
    spool, spool_pool   what agents did, line by line; `transfer` brings it from nodes without a shared disk
    rehearsal_place     the same job on this CPU, with `rehearsal_model`; `shim` and `standin` replace what needs a GPU
    process, cluster    one machine, or a Ray cluster; `checks` looks at both, `ray_script` speaks to Ray
    agent               what runs inside OpenRLHF's rollout actors, with `policy`, `shared` and `worker`
    imitate             what runs inside its supervised trainer
    log, ingest         output and spool become the events of a run, while it runs
    run, rehearsal      put them together

The class here answers what is asked of an engine, and imports what an answer takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rlf.apps.openrlhf.job import Job, has_whole_shards, saved_models
from rlf.apps.openrlhf.settings import ESTIMATOR_NAMES, LOSS_NAMES, Layout, OpenRlhfSettings
from rlf.engines.engine import Fit
from rlf.plan.estimate import EngineReport
from rlf.spec.engines import Feature

if TYPE_CHECKING:
    from rlf.core import Fault
    from rlf.engines.engine import EngineRun, Opening, RehearsalReport
    from rlf.plan.estimate import ModelShape
    from rlf.spec import LoadedSpec, RunSpec
    from rlf.types.task import Task

__all__ = ["OpenRlhf"]


class OpenRlhf(OpenRlhfSettings):
    """The engine for real models. The reference and the critic exist where `train` needs them."""

    TITLE: ClassVar[str] = "OpenRLHF"
    ESTIMATORS: ClassVar[tuple[str, ...] | None] = tuple(ESTIMATOR_NAMES)
    LOSSES: ClassVar[tuple[str, ...] | None] = tuple(LOSS_NAMES)
    LACKS: ClassVar[Mapping[Feature, str]] = {
        Feature.TURN_REWARDS: "OpenRLHF has one reward for a trajectory, not one for each turn",
        Feature.FORKED_HISTORY: "OpenRLHF trains one sequence for each sample",
        Feature.AGENT_BREAKS: "each new context is a sequence, and OpenRLHF trains one for each sample",
        Feature.OBSERVATIONS_IN_LOSS: "vLLM gives no probabilities of tokens that it did not sample",
        Feature.SKIPPED_OBSERVATIONS: "OpenRLHF's gae takes bootstrap only",
        Feature.DEMONSTRATIONS: "OpenRLHF's trainer samples every row, and its supervised trainer is another program",
        Feature.EVALUATED_IMITATION: "OpenRLHF's supervised trainer samples nothing",
        Feature.PREFIX_ROWS: "samples of a prompt begin side by side, with no trajectory to continue",
        Feature.FILTER_ROUNDS: "OpenRLHF draws questions until the step is full",
        Feature.POOLS: "OpenRLHF's rows are in a file before the first step",
        Feature.LOGICAL_SCHEDULE: "what vLLM samples depends on its load, so a seed does not repeat the same tokens",
        Feature.STRAGGLERS: "OpenRLHF draws rows by the step, and rlf knows a trajectory's step by its row",
        Feature.STALENESS: "OpenRLHF plays rollouts beside updates by its own mode",
        Feature.ONE_SCORER: "engine openrlhf scores in several processes",
        Feature.EVALUATION_BUDGET: "OpenRLHF evaluates in processes that do not know each other's costs",
        Feature.ROLLBACK: "OpenRLHF continues from the newest of its own checkpoints",
        Feature.RECORDED_CALLS: "engine openrlhf calls tools in other processes",
        Feature.BRANCHES: "DeepSpeed's shards hold the optimizer's state for one job's processes and options",
        Feature.CHECKPOINT_MODELS: "DeepSpeed's shards hold the weights for one job's processes",
    }

    HAS_NEWER_STATE: ClassVar[bool] = True
    COUNTS_LEFT_OUT: ClassVar[bool] = True

    def trained_reward(self, reward: float) -> float:
        """A reward as OpenRLHF gets it."""
        from rlf.apps.openrlhf.shared import round_reward

        return round_reward(reward)

    def find_faults(self, loaded: LoadedSpec) -> Iterator[Fault]:
        """Faults that OpenRLHF would change silently, refuse at its start or fail at after minutes."""
        from rlf.apps.openrlhf.faults import find_openrlhf_faults

        return find_openrlhf_faults(loaded)

    def find_warnings(self, loaded: LoadedSpec) -> Iterator[Fault]:
        """Warnings of what OpenRLHF does differently from the local engine."""
        from rlf.apps.openrlhf.checks import find_openrlhf_warnings

        return find_openrlhf_warnings(loaded, self)

    def look(self, loaded: LoadedSpec, train: Sequence[Task], evaluation: Sequence[Task]) -> Iterator[Fault]:
        """Finds unknown options, weights that vLLM cannot split or adapt, and rows that JSON cannot hold."""
        from rlf.apps.openrlhf.checks import find_looked_faults

        return find_looked_faults(loaded, {"train": train, "eval": evaluation})

    def try_out(self, loaded: LoadedSpec) -> tuple[list[Fault], list[Fault]]:
        """Runs OpenRLHF's own parser over the job's options: this environment's, or that of rehearsals."""
        from rlf.apps.openrlhf.flags import check_options
        from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment

        environment = rehearsal_environment()
        faults, warnings = check_options(loaded, environment.python if environment.is_ready(vllm=False) else None)
        if loaded.spec.data.demonstrations is not None:
            from rlf.training.harness import find_unwritable

            faults += find_unwritable(loaded)
        return faults, warnings

    def report(
        self, spec: RunSpec, shape: ModelShape | None, folder: Path, *, gpu_bytes: int | None, num_eval_rows: int
    ) -> EngineReport:
        """The memory of each kind of GPU of the job, its checkpoints, and its options."""
        from rlf.apps.openrlhf.estimates import estimate_gpus, estimate_job_disk, estimate_machine
        from rlf.apps.openrlhf.supervised import job_argv

        return EngineReport(
            gpus=() if shape is None else tuple(estimate_gpus(spec, shape, gpu_bytes)),
            machine=None if shape is None else estimate_machine(spec, shape),
            num_gpus=Layout.of(spec).total_gpus(self),
            argv=tuple(job_argv(spec, Job.of_run(folder, self.output))),
            disk=None if shape is None else estimate_job_disk(spec, shape),
            disk_folder=self.checkpoints_in(folder) if self._sees_output() else None,
        )

    def _sees_output(self) -> bool:
        """Whether this machine has the disk that the job writes to: its own, or one that it shares with the nodes."""
        if self.ray_address is None:
            return True
        return self.ingest is None and self.output is not None and Path(self.output).is_dir()

    def open(self, opening: Opening) -> EngineRun:
        """A run as a job: with this Python, or on this CPU where that is the environment of rehearsals."""
        from rlf.apps.openrlhf.rehearsal_place import find_place
        from rlf.apps.openrlhf.run import OpenRlhfRun

        place = find_place(opening.plan.spec, opening.place)
        return OpenRlhfRun(
            opening.plan,
            opening.inputs,
            opening.folder,
            emit=opening.emit,
            flush=opening.flush,
            encode=opening.encode,
            place=place,
        )

    def fit_here(self, spec: RunSpec) -> Fit:
        """This CPU if rlf runs in the environment of rehearsals; else the spec as it is."""
        from rlf.apps.openrlhf.rehearsal_place import CpuPlace

        cpu = CpuPlace.here()
        return Fit() if cpu is None else cpu.fit(spec)

    def fit_rehearsal(self, spec: RunSpec, *, vllm: bool) -> Fit:
        """This CPU, in the environment of rehearsals."""
        from rlf.apps.openrlhf.rehearsal_place import CpuPlace

        return CpuPlace.ready(spec, vllm=vllm).fit(spec)

    def rehearse(self, loaded: LoadedSpec, reach: Callable[[str, str], None], *, vllm: bool) -> RehearsalReport:
        """Two steps of the job on this CPU, with a small model."""
        from rlf.apps.openrlhf.rehearsal import rehearse_job
        from rlf.apps.openrlhf.rehearsal_place import CpuPlace

        return rehearse_job(loaded, reach, CpuPlace.ready(loaded.spec, vllm=vllm))

    @classmethod
    def make_rehearsals(cls, *, vllm: bool, tell: Callable[[str], None]) -> tuple[Path, Path]:
        """Makes the environment of rehearsals."""
        from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment

        environment = rehearsal_environment()
        environment.setup(vllm=vllm, tell=tell)
        return environment.folder, environment.command

    def checkpoints_in(self, folder: Path) -> Path:
        """The folder of DeepSpeed's checkpoints."""
        return Job.of_run(folder, self.output).checkpoints

    def find_damage(self, checkpoint: Path, sha256: str) -> str | None:
        """The damage to the shards of a checkpoint; None for shards on the disks of nodes."""
        if self.ingest is not None:
            return None
        if not checkpoint.is_dir():
            return "the folder is gone"
        return None if has_whole_shards(checkpoint, sha256) else "a shard is missing or not what was written"

    def models_in(self, folder: Path, last_step: int) -> dict[int, Path]:
        """The models of `hf_checkpoints`, and the final one."""
        return saved_models(Job.of_run(folder, self.output), last_step)
