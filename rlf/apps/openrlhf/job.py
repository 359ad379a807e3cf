"""The job folder: everything that OpenRLHF needs to run a plan, as files that a person can read and start by hand.

    argv.json      options of `python -m openrlhf.cli.train_ppo_ray`, a list of strings, or where every step imitates of
                   `openrlhf.cli.train_sft`, which is started on rlf's tokens as launch.sh does
    launch.sh      the same as a shell script: `bash launch.sh` starts the job
    agent.py       `AgentExecutor`, which hands over to rlf with the folder that it lies in
    plan.json      the plan, as `rlf.plan.plan_to_json` writes it
    env.json       environment variables: values that the job sets, and names of the secrets that it needs
    ingest.pem     the certificate of the machine that takes records, with `engine.ingest.certificate`
    data/          train.jsonl and, with an evaluation set, eval.jsonl (`job.dataset`); where every step imitates, the
                   demonstrations as tokens, in heldout.jsonl those that are held out
    images/        the images that they name, each once (`job.images`), unless every node sees them in `output`
    spool/         one file per process: trajectories, tool calls and scores, written by the agents, or copies of such
                   files on the nodes (`engine.ingest`)
    ckpt/          DeepSpeed checkpoints in `_actor` and `_critic`, Hugging Face folders in `global_stepN_hf`
    attempt.json   the latest launch (`job.attempt`); place.json: with which Python it runs, and where
    logs/          what OpenRLHF and Ray printed, a file for each launch
    model/         the final model, a Hugging Face folder
    tensorboard/   OpenRLHF's own metrics, with `engine.tensorboard`

Inputs are named relative to the folder, so that it can be shipped to a cluster whole; what the job writes is named
absolutely. The agent's configuration travels by place: `agent.py` reads the plan.json beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from zipfile import BadZipFile, ZipFile

from rlf.core.identity import hash_json
from rlf.core.kinds import StrictModel


class _Place:
    """What lies below one of a job's two folders, by its name there."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name

    def __get__(self, job: Job, _: type[Job]) -> Path:
        root: Path = getattr(job, self._folder)
        return root / self._name


@dataclass(frozen=True, slots=True)
class Job:
    """The paths of one job."""

    folder: Path
    """Absolute; `runs/<id>/job` on the machine that starts the run."""
    output: Path
    """Where spool, checkpoints and the final model are written: the folder itself, or one that every node sees."""

    argv = _Place("folder", "argv.json")
    """JSON list of options."""
    launch = _Place("folder", "launch.sh")
    """Shell script."""
    agent = _Place("folder", "agent.py")
    """Python file with `AgentExecutor`."""
    plan = _Place("folder", "plan.json")
    """The plan, without secrets."""
    env = _Place("folder", "env.json")
    """`{"set": {NAME: value}, "secrets": [NAME]}`."""
    train = _Place("folder", "data/train.jsonl")
    """Rows of the training set, as many as the run draws."""
    evaluation = _Place("folder", "data/eval.jsonl")
    """Rows of the evaluation set; no such file without one."""
    heldout = _Place("folder", "data/heldout.jsonl")
    """Demonstrations that are held out, where every step imitates others."""
    certificate = _Place("folder", "ingest.pem")
    """Copy of `engine.ingest.certificate`, by which agents know the machine that takes their records."""
    spool = _Place("output", "spool")
    """Folder of the agents' records."""
    checkpoints = _Place("output", "ckpt")
    """Folder of `--ckpt.path`."""
    model = _Place("output", "model")
    """Folder of `--ckpt.output_dir`."""
    tensorboard = _Place("output", "tensorboard")
    """Folder of `--logger.tensorboard_dir`; events lie in a folder below it, named after the run."""

    @classmethod
    def of_run(cls, folder: Path, output: str | None) -> Self:
        """The job of a run, whose folder and `engine.output` are given."""
        job = folder.absolute() / "job"
        return cls(job, job if output is None else Path(output).absolute() / folder.name)

    @property
    def run_id(self) -> str:
        """The run that the job is of."""
        return self.folder.parent.name

    def received(self, attempt: int) -> Path:
        """Folder of the copies that `engine.ingest` makes of the agents' records, on the machine that runs `rlf`."""
        return self.folder / "spool" / f"attempt-{attempt}"

    def log(self, attempt: int) -> Path:
        """OpenRLHF's output in the n-th launch."""
        return self.folder / "logs" / f"attempt-{attempt}.log"


# Where a job of one machine runs: with which Python, which variables, and how much Ray may count on.
#
# Kept in the job folder, so that a resume continues at the same place.

_FILE = "place.json"


class MachinePlace(StrictModel):
    """The Python, variables and resources of one machine."""

    python: str = sys.executable
    """The interpreter that has OpenRLHF and what it needs."""
    paths: tuple[str, ...] = ()
    """Folders that go before everything else on its path."""
    variables: Mapping[str, str] = {}
    """Set for every process of the job."""
    num_gpus: int | None = None
    """GPUs that Ray counts on; None: those that it finds."""
    num_cpus: int | None = None
    """CPU cores that Ray counts on; None: those that it finds."""
    object_store_bytes: int | None = None
    """Memory for what actors hand each other; None: Ray's default, 30 % of the machine's."""
    name: str = ""
    """What it is called in the lineage; empty: by its number of GPUs."""

    def environment(self, job_variables: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the job's processes."""
        inherited = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PYTHONHOME")}
        folders = [*self.paths, *filter(None, [os.environ.get("PYTHONPATH")])]
        path = {"PYTHONPATH": os.pathsep.join(folders)} if folders else {}
        return inherited | {"RAY_DEDUP_LOGS": "0"} | dict(job_variables) | dict(self.variables) | path


def read_place(job: Job) -> MachinePlace | None:
    """Where a job was started; None before its first launch."""
    file = job.folder / _FILE
    return MachinePlace.model_validate_json(file.read_text()) if file.is_file() else None


def write_place(job: Job, place: MachinePlace) -> None:
    """Saves where a job is started."""
    (job.folder / _FILE).write_text(place.model_dump_json(indent=1))


# One launch of a job: what differs between the first and those that continue after a stop.
#
# The driver writes `attempt.json` into the job folder before each launch; the agents read it beside their `agent.py`.

_FILE_ATTEMPT = "attempt.json"


class JobAttempt(StrictModel):
    """Where the agents of one launch write, and what they do first."""

    run: str
    """The run's id."""
    number: int
    """Counts from 1."""
    first_step: int
    """The step that it begins with: 1, or the one after the checkpoint that it continues from."""
    spool: str
    """Folder of the agents' records."""
    evaluate_first: bool
    """Whether the policy is evaluated before anything is trained on."""
    opening_calls: bool = False
    """Whether every other trajectory opens with a written tool call, so that a rehearsal tries every tool."""
    left_is_told: bool = False
    """Whether the lineage has the trajectories that the end of this launch cut off."""


def read_attempt(job: Job) -> JobAttempt:
    """The latest launch of a job; the first one for a job that was started by hand."""
    file = job.folder / _FILE_ATTEMPT
    return JobAttempt.model_validate_json(file.read_text()) if file.is_file() else new_attempt(job, 1, first_step=1)


def new_attempt(job: Job, number: int, *, first_step: int, opening_calls: bool = False) -> JobAttempt:
    """The launch of that number; it evaluates first where nothing has been trained yet."""
    return JobAttempt(
        run=job.run_id,
        number=number,
        first_step=first_step,
        spool=str(job.spool / f"attempt-{number}"),
        evaluate_first=first_step == 1,
        opening_calls=opening_calls,
    )


def write_attempt(job: Job, attempt: JobAttempt) -> None:
    """Makes `attempt` the latest launch."""
    temporary = job.folder / f".{_FILE_ATTEMPT}.tmp"
    temporary.write_text(attempt.model_dump_json(indent=1))
    temporary.replace(job.folder / _FILE_ATTEMPT)


# DeepSpeed's checkpoints of a job: `ckpt/_actor/global_stepN`, the critic's beside, and the one that `latest` names.
#
# DeepSpeed writes a model's `latest` when all of that model is written, and continues from the one that it names.
# Policy and critic are written side by side, so a checkpoint is whole when both have come as far.

_PREFIX = "global_step"
_METRIC = "metric.json"
"""OpenRLHF's file of a checkpoint with the result that it is worth keeping for (0.11.2)."""


def latest_checkpoint(job: Job) -> Path | None:
    """The policy's folder of the newest checkpoint that every trained model has whole; None where there is none."""
    whole = whole_checkpoints(job)
    return whole[-1] if whole else None


def whole_checkpoints(job: Job) -> list[Path]:
    """The policy's folders of the checkpoints that every trained model has whole and still there, oldest first."""
    last = min(map(_last_written, _trained(job)))
    return [path for path in _checkpoints(job) if step_of(path) <= last]


def _checkpoints(job: Job) -> list[Path]:
    """The same with those that are being written."""
    policy, *others = _trained(job)
    there = (path for path in policy.glob(f"{_PREFIX}*") if all((folder / path.name).is_dir() for folder in others))
    return sorted(there, key=step_of)


def point_to(job: Job, checkpoint: Path | None) -> None:
    """Makes DeepSpeed continue from a checkpoint, since it may otherwise look for one that was removed.

    What is newer is removed: a stop left it half-written, or the run goes back behind it. OpenRLHF counts its folder as
    a checkpoint, and would remove an older one for it: the one that the run continues from.

    Args:
        checkpoint: the policy's folder; None: from the start.
    """
    for folder in job.checkpoints.glob("_*"):
        if checkpoint is None:
            shutil.rmtree(folder)
            continue
        (folder / "latest").write_text(checkpoint.name)
        for newer in folder.glob(f"{_PREFIX}*"):
            if step_of(newer) > step_of(checkpoint):
                shutil.rmtree(newer)


def kept_folders(job: Job, keep: int) -> list[Path]:
    """The policy's folders that a run keeps, oldest first: the newest, and the one with the best evaluation."""
    whole, best = whole_checkpoints(job), best_checkpoint(job)
    return [path for path in whole if path in whole[-keep:] or (best is not None and path == best[0])]


def best_checkpoint(job: Job) -> tuple[Path, float] | None:
    """The policy's folder of the checkpoint with the best evaluation, and its success; None where none is marked.

    It was whole when it was marked. Which are whole now is not asked: at the moment in which DeepSpeed writes `latest`,
    the best would seem to be none, and the next evaluation would take its place.
    """
    marked = [(path, success) for path in _checkpoints(job) if (success := _read_metric(path)) is not None]
    return max(marked, key=lambda found: found[1], default=None)


def mark_best(job: Job, step: int, success: float) -> None:
    """Keeps the checkpoint of a step, if there is one, in place of the one that was the best before.

    OpenRLHF removes checkpoints without a metric before those with one, and writes none by itself, so that the one with
    a metric stays. Among the others it takes the folder that changed first, so the time of a folder is put back.

    Args:
        step: of an evaluation that is over: OpenRLHF has written its checkpoint before.
    """
    there = _checkpoints(job)
    if step not in map(step_of, there):
        return
    there.sort(key=lambda path: step_of(path) != step)  # marked first: a stop in between leaves two, and the better one
    for folder in _trained(job):
        for path in there:
            own, is_new = folder / path.name, step_of(path) == step
            if is_new or _read_metric(own) is not None:
                with suppress(FileNotFoundError):  # OpenRLHF may remove it at any moment, as it may read it
                    _write_metric(own, success if is_new else None)


def _write_metric(checkpoint: Path, success: float | None) -> None:
    changed = checkpoint.stat()
    whole_file = checkpoint / f".{_METRIC}.tmp"
    whole_file.write_text(json.dumps({"metric_value": success}))
    whole_file.replace(checkpoint / _METRIC)
    os.utime(checkpoint, ns=(changed.st_atime_ns, changed.st_mtime_ns))


def _read_metric(checkpoint: Path) -> float | None:
    try:
        found = json.loads((checkpoint / _METRIC).read_text())
    except (OSError, ValueError):  # there is none, or OpenRLHF is writing it
        return None
    value = found.get("metric_value") if isinstance(found, dict) else None
    return value if isinstance(value, float) else None


def drop_surplus(job: Job, keep: int) -> None:
    """Removes the checkpoints of a job that is over which the run does not keep.

    While it runs, more are there: OpenRLHF makes room before it writes, and counts the best one too.
    """
    kept = kept_folders(job, keep)
    for path in whole_checkpoints(job):
        for folder in _trained(job) if path not in kept else ():
            shutil.rmtree(folder / path.name)


def saved_models(job: Job, last_step: int) -> dict[int, Path]:
    """The Hugging Face folders of a job by step, in order: those of its checkpoints, and the final model."""
    folders = job.checkpoints.glob(f"{_PREFIX}*_hf")
    found = {int(path.name.removeprefix(_PREFIX).removesuffix("_hf")): path for path in folders}
    last = {last_step: job.model} if (job.model / "config.json").is_file() else {}
    return dict(sorted(found.items())) | last


def step_of(checkpoint: Path) -> int:
    """The number of updates before a checkpoint."""
    return int(checkpoint.name.removeprefix(_PREFIX))


def checkpoint_hash(folder: Path) -> str:
    """Hash of the names and sizes of a checkpoint's shards; their contents can be terabytes."""
    return _hash_of(_shards(folder), folder)


def _hash_of(shards: Sequence[Path], folder: Path) -> str:
    return hash_json([[os.path.relpath(path, folder), path.stat().st_size] for path in shards])


def has_whole_shards(checkpoint: Path, sha256: str) -> bool:
    """Whether the shards are those that were recorded, and the content of each has the checksums of its writing."""
    try:
        shards = _shards(checkpoint)
        policys = [path for path in shards if path.is_relative_to(checkpoint)]
        # Before 2026-11-27 the hash of a checkpoint with a critic was that of the policy alone.
        is_recorded = sha256 in (_hash_of(shards, checkpoint), _hash_of(policys, checkpoint))
        return is_recorded and all(map(_reads_back, shards))
    except OSError:
        return False


def _reads_back(shard: Path) -> bool:
    """torch writes zip archives, with a checksum for each tensor."""
    try:
        with ZipFile(shard) as archive:
            return archive.testzip() is None
    except BadZipFile:
        return False


def _shards(folder: Path) -> list[Path]:
    """Files that each process of the job wrote: weights, and its part of the optimiser. The critic's lie beside."""
    return sorted([*folder.rglob("*.pt"), *(folder.parents[1] / "_critic" / folder.name).rglob("*.pt")])


def _trained(job: Job) -> list[Path]:
    """Where each trained model of a job is saved, the policy first."""
    has_critic = job.argv.is_file() and "--critic.adam.lr" in json.loads(job.argv.read_text())
    return [job.checkpoints / name for name in ("_actor", *(["_critic"] if has_critic else []))]


def _last_written(folder: Path) -> int:
    """The step of the last whole checkpoint of one model; -1 where there is none."""
    try:
        tag = (folder / "latest").read_text().strip()
    except FileNotFoundError:
        return -1
    if tag.startswith(_PREFIX) and (folder / tag).is_dir():
        return step_of(folder / tag)
    # It is being written, or its writer was stopped or found the disk full: only the newest may not be whole.
    steps = sorted(map(step_of, folder.glob(f"{_PREFIX}*")))
    return steps[-2] if len(steps) > 1 else -1
