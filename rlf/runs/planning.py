"""A run before it runs: its values, files, work, memory, and the time that earlier runs took."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import NormalDist, fmean, median, stdev
from typing import Any, ClassVar

from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.core.process import machine_memory_bytes
from rlf.engines.engine import engine_of
from rlf.lineage.read_only import has_lineage
from rlf.plan import Plan
from rlf.plan.estimate import EngineReport, GpuMemory, Memory, MemoryPart, Workload, estimate_work
from rlf.reports.paired import ALPHA, CHANCE, SHARE_LOST, Power, power_of
from rlf.reports.statistics import find_edge, student_quantile
from rlf.runs.opening import find_free_bytes, model_shape
from rlf.runs.plans import check_spec
from rlf.spec import InputFile, LoadedSpec, RunSpec
from rlf.spec.models import WITHOUT_EFFECT
from rlf.spec.nodes import OVERRIDE, KeyPath, Node, dotted, walk
from rlf.types.events import RunStatus

# Every value of a plan with where it came from, and how two plans differ. Pure.

_WHOLE = frozenset({"inputSchema", "tests"})
"""Keys whose values are one value each: the user's own JSON."""


class Source(StrEnum):
    """Who set a value."""

    DEFAULT = "default"
    """Nobody."""
    FILE = "file"
    """A spec, tool or reward file."""
    OVERRIDE = "override"
    """The command line."""
    ENVIRONMENT = "environment"
    """A variable, named by a file or the command line."""


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """One value of the resolved spec."""

    path: str
    value: Any
    """As JSON; of tools and rewards the text as written where it was filled in, since that may be secret."""
    source: Source
    place: str
    """`file:line:column`, with the `${...}` it was filled in from; empty for defaults and overrides."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose values differ; None where one of the plans has no such key."""

    path: str
    left: PlannedValue | None
    right: PlannedValue | None


def planned_values(plan: Plan, loaded: LoadedSpec) -> list[PlannedValue]:
    """Every value, in the order of the spec's sections."""
    values = plan.model_dump(mode="json", by_alias=True)["spec"]
    nodes = {path: node for path, node in walk(loaded.tree) if path}
    return [PlannedValue(dotted(path), value, *_origin_of(nodes.get(path))) for path, value in _list_leaves(values, ())]


def leaves(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a plan's spec by key, as `planned_values` has them."""
    return {dotted(path): value for path, value in _list_leaves(values, ()) if path}


def differences(left: Sequence[PlannedValue], right: Sequence[PlannedValue]) -> list[Difference]:
    """The keys whose values differ, in the order of the left plan, then what only the right one has."""
    by_path: tuple[Mapping[str, PlannedValue], ...] = tuple({v.path: v for v in side} for side in (left, right))
    paths = dict.fromkeys([*by_path[0], *by_path[1]])
    pairs = [Difference(path, by_path[0].get(path), by_path[1].get(path)) for path in paths]
    return [pair for pair in pairs if pair.left is None or pair.right is None or pair.left.value != pair.right.value]


def _list_leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Scalars, lists of scalars and empty collections, and values that are the user's own JSON."""
    if path and path[-1] in _WHOLE:
        yield path, value
    elif isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _list_leaves(child, (*path, key))
    elif isinstance(value, list) and any(isinstance(child, dict | list) for child in value):
        for index, child in enumerate(value):
            yield from _list_leaves(child, (*path, index))
    else:
        yield path, value


def _origin_of(node: Node | None) -> tuple[Source, str]:
    if node is None:
        return Source.DEFAULT, ""
    given = node.place.file == OVERRIDE
    place = "" if given else node.origin
    if node.written is not None and "oc.env" in node.written:
        return Source.ENVIRONMENT, f"{place} {node.written}".strip()
    return (Source.OVERRIDE if given else Source.FILE), place


# GB is 10^9 and GiB 2^30 bytes; without a unit a number would be ambiguous and is refused later.
_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)\s*(?P<unit>GiB|GB|MiB|MB)?", re.IGNORECASE)
_UNITS = {"gib": 2**30, "gb": 10**9, "mib": 2**20, "mb": 10**6}


@dataclass(frozen=True, slots=True)
class PlanningFit:
    """Whether the memory, or the room on a disk, is there."""

    where: str
    """`this machine's memory`, the GPU that was named, or the free space of a folder."""
    size_bytes: int
    fits: bool


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of steps of the same plan."""

    median_s: float
    num_steps: int
    run_ids: tuple[str, ...]
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeedsPlan:
    """What runs of several seeds on two sides can show, and what they take."""

    num_seeds: int
    """Of either side."""
    difference: float
    """The smallest that is shown with 80 % power."""
    cost_usd: float | None
    """Of all runs together; None where no run of the plan has ended."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """What runs of the same plan show, whatever their seeds."""

    run_ids: tuple[str, ...]
    """Those that finished."""
    seed_spread: float | None
    """Standard deviation of held-out success between them; None for fewer than two seeds."""
    inflation: float | None
    """Of the variance of success by clusters of questions; None without any."""
    cost_usd: float | None
    """Mean; None where none finished."""


@dataclass(frozen=True, slots=True)
class PlanReport(Jsonable):
    """Everything that `rlf plan` shows."""

    name: str
    plan_hash: str
    files: tuple[InputFile, ...]
    values: tuple[PlannedValue, ...]
    work: Workload
    memory: Memory | None
    """Of one process; None where the engine has several, and where sizes are not known."""
    gpus: tuple[GpuMemory, ...]
    """Each kind of GPU of the job; empty for one process, and where sizes are not known."""
    machine: Memory | None
    """What each machine of a job holds beside its GPUs; None for one process, and where sizes are not known."""
    num_gpus: int
    """GPUs of the whole job; 0 for one process."""
    argv: tuple[str, ...]
    """The options that the job is started with, for the run `RUN`; empty for an engine without any."""
    disk: Memory | None
    """What the run writes, its lineage included, at its fullest; None where sizes are not known."""
    room: PlanningFit | None
    """Whether that fits the disk; None where sizes are not known, or only other machines see the disk."""
    memory_unknown: str
    """Why there is no estimate; empty where there is one."""
    fit: PlanningFit | None
    step_time: StepTime | None
    """None where no run of the same plan has made a step."""
    earlier: Earlier
    JSON_PROPERTIES: ClassVar = ("power", "seeds")

    @property
    def power(self) -> Power | None:
        """The differences that its evaluations can show; None where it has none."""
        return power_of(self.work.num_questions) if self.work.num_evaluations else None

    @property
    def seeds(self) -> tuple[SeedsPlan, ...]:
        """The same of several seeds on both sides, with what they cost; none without evaluations."""
        spread, cost = self.earlier.seed_spread, self.earlier.cost_usd
        return tuple(
            SeedsPlan(
                number,
                separable_difference(
                    number,
                    self.work.num_questions,
                    ASSUMED_SPREAD if spread is None else spread,
                    self.earlier.inflation or 1.0,
                ),
                None if cost is None else 2 * number * cost,
            )
            for number in ((3, 5) if self.work.num_evaluations else ())
        )


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """Two plans side by side."""

    left: str
    right: str
    left_hash: str
    right_hash: str
    differences: tuple[Difference, ...]


def report_plan(
    files: Sequence[Path],
    overrides: Sequence[str],
    *,
    gpu: str | None,
    runs_folder: Path,
    texts: Mapping[Path, str] | None = None,
) -> PlanReport:
    """The report of a spec that has been checked as a whole. Loads no torch.

    Args:
        gpu: size of the GPU that the run is meant for, e.g. `24GB`; None for this machine's CPU.
        runs_folder: where earlier runs are looked for.
        texts: what is read in place of files, by absolute path.

    Raises:
        SpecError, RlfError: the spec or the size is wrong.
    """
    gpu_bytes = None if gpu is None else parse_size(gpu)
    checked = check_spec(files, overrides, texts=texts)
    loaded, plan, spec = checked.loaded, checked.plan, checked.loaded.spec
    shape, unknown = model_shape(spec)
    taken = engine_of(spec).report(
        spec, shape, runs_folder / "RUN", gpu_bytes=gpu_bytes, num_eval_rows=checked.num_eval_rows
    )
    if shape is not None and taken.memory is None and not taken.gpus:
        unknown = f"there are no formulas for engine {spec.engine.kind}"
    work = estimate_work(spec, checked.num_train_rows, checked.num_eval_rows)
    disk = None if taken.disk is None else Memory("disk", (*taken.disk.parts, lineage_part(spec, work)))
    free_bytes = None if taken.disk_folder is None else find_free_bytes(taken.disk_folder)
    return PlanReport(
        name=spec.name,
        plan_hash=plan.plan_hash,
        files=plan.files,
        values=tuple(planned_values(plan, loaded)),
        work=work,
        memory=taken.memory,
        gpus=taken.gpus,
        machine=taken.machine,
        num_gpus=taken.num_gpus,
        argv=taken.argv,
        disk=disk,
        room=None
        if disk is None or free_bytes is None
        else PlanningFit(f"what is free at {taken.disk_folder}", free_bytes, disk.total_bytes <= free_bytes),
        memory_unknown=unknown,
        fit=_find_fit(taken, gpu, gpu_bytes),
        step_time=step_time_of(plan, runs_folder),
        earlier=_read_earlier(plan, runs_folder),
    )


def compare_plans(left: Path, right: Path, overrides: Sequence[str]) -> PlanDifference:
    """Compares two specs, each with the same overrides."""
    one, other = check_spec([left], overrides), check_spec([right], overrides)
    found = differences(planned_values(one.plan, one.loaded), planned_values(other.plan, other.loaded))
    return PlanDifference(str(left), str(right), one.plan.plan_hash, other.plan.plan_hash, tuple(found))


def parse_size(text: str) -> int:
    """Bytes of a size such as `24GB` (10^9) or `22.5GiB` (2^30). Raises RlfError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not match["unit"]:
        raise RlfError(f"--gpu: got {text!r}; expected a size with its unit. Write e.g. `--gpu 24GB` or `--gpu 80GiB`.")
    return int(float(match["number"]) * _UNITS[match["unit"].lower()])


def _find_fit(taken: EngineReport, gpu: str | None, gpu_bytes: int | None) -> PlanningFit | None:
    """Whether a run fits this machine's memory, or GPUs of a size; None where that is not known."""
    memory = taken.memory
    if memory is not None and memory.device != "gpu" and gpu_bytes is None:
        size = machine_memory_bytes()
        return PlanningFit("this machine's memory", size, memory.total_bytes <= size)
    if gpu_bytes is None or (memory is None and not taken.gpus):
        return None
    if memory is not None:
        return PlanningFit(f"a GPU of {gpu}", gpu_bytes, memory.total_bytes <= gpu_bytes)
    fits = all(group.peak_bytes <= gpu_bytes and not group.lacks for group in taken.gpus)
    return PlanningFit(f"GPUs of {gpu}", gpu_bytes, fits)


def step_time_of(plan: Plan, runs_folder: Path) -> StepTime | None:
    """The median over the steps of all runs of this plan in a folder."""
    if not has_lineage(runs_folder):
        return None
    from rlf.runs.place import open_reader  # loads the database's library

    with open_reader(runs_folder) as reader:
        runs = reader.list_runs([line.id for line in reader.run_lines() if line.plan_hash == plan.plan_hash])
        steps = {run.record.id: [step.metrics for step in reader.steps(run.record.id)] for run in runs}
    times = [metrics["time/step_s"] for of_run in steps.values() for metrics in of_run if "time/step_s" in metrics]
    if not times:
        return None
    devices = dict.fromkeys(str(run.record.host.get("device", "?")) for run in runs if steps[run.record.id])
    return StepTime(median(times), len(times), tuple(id_ for id_ in steps if steps[id_]), tuple(devices))


def _read_earlier(plan: Plan, runs_folder: Path) -> Earlier:
    """What runs of this plan in a folder show; their seeds may be others."""
    if not has_lineage(runs_folder):
        return Earlier((), None, None, None)
    from rlf.lineage.calls import read_costs
    from rlf.lineage.records import TrajectoryFilter
    from rlf.reports.statistics import find_spread
    from rlf.reports.success import success_by_task
    from rlf.runs.place import open_reader  # loads the database's library

    own = _without_seed(plan.model_dump(mode="json", by_alias=True)["spec"])
    success, inflations, costs = dict[int, float](), list[float](), dict[str, float]()
    with open_reader(runs_folder) as reader:
        for run in reader.list_runs([line.id for line in reader.run_lines(name=plan.spec.name)]):
            run_id = run.record.id
            if run.status is not RunStatus.FINISHED or _without_seed(run.record.plan.get("spec", {})) != own:
                continue
            costs[run_id] = sum(cost.cost_usd for cost in read_costs(reader, run_id))
            last = reader.latest_evaluations([run_id]).get(run_id)
            if last is None or "success" not in last.metrics:
                continue
            success.setdefault(run.record.seed, last.metrics["success"])
            tries = reader.trajectories(run_id, TrajectoryFilter(phase=last.mode, step=last.step))
            spread = find_spread(success_by_task(tries), reader.clusters(run, last.mode), are_shares=True)
            inflations += [] if spread is None else [spread.inflation]
    return Earlier(
        tuple(costs),
        stdev(success.values()) if len(success) > 1 else None,
        max(1.0, median(inflations)) if inflations else None,
        fmean(costs.values()) if costs else None,
    )


def _without_seed(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key not in ("seed", *WITHOUT_EFFECT)}


_NUM_QUANTILES = 64
ASSUMED_SPREAD = 0.02
"""Standard deviation of held-out success between seeds of one plan, where none were recorded."""


def separable_difference(num_seeds: int, num_questions: int, seed_spread: float, inflation: float = 1.0) -> float:
    """The smallest difference D that two sides of several seeds show with a chance of 80 %, by `crossed_evidence`.

    Both sides vary by their seeds, a = 2 s² / k; by the questions that the better one gains, whatever the seed, and by
    5 % that either run of a pair loses by chance, b = inflation ((D - D²) / n + c) with c = 10 % / (n k). The chance is
    the mean of P(D + sqrt(a + b) Z > half) over what the runs may show of a + c, chi-squared with 2 (k - 1) degrees.

    Args:
        num_seeds: k, of either side.
        seed_spread: s, the standard deviation of success between the seeds of a side.
        inflation: Of questions in clusters.
    """
    import numpy as np
    from scipy.special import gammaincinv, ndtr

    freedom = 2 * (num_seeds - 1)
    welch = 0.75 * freedom  # few runs seldom show equal variances, and Welch counts fewer then
    of_seeds, of_questions = student_quantile(1 - ALPHA, welch), NormalDist().inv_cdf(1 - ALPHA / 2)
    a, c = 2 * seed_spread**2 / num_seeds, 2 * SHARE_LOST / (num_questions * num_seeds)
    shown = (a + c) * 2 * gammaincinv(freedom / 2, (np.arange(_NUM_QUANTILES) + 0.5) / _NUM_QUANTILES) / freedom
    a_shown = np.maximum(0.0, shown - max(0.5, 1 - 2 / welch) * c)

    def is_missed(difference: float) -> bool:
        b = inflation * ((difference - difference**2) / num_questions + c)
        halves = np.sqrt(of_seeds**2 * a_shown + of_questions**2 * b)
        return float(np.mean(ndtr((difference - halves) / math.sqrt(a + b)))) < CHANCE

    return find_edge(is_missed, 0.0, 1.0)


def lineage_part(spec: RunSpec, work: Workload) -> MemoryPart:
    """What the lineage grows by, without images: a bound, as that on tokens."""
    longest, each = spec.rollout.max_total_tokens, work.num_trajectories // work.num_steps
    size_bytes = _TRAJECTORY + _TOKEN * longest
    return MemoryPart(
        "lineage, at most",
        "(steps x trajectories + evaluations) x (2000 + 16 max_total_tokens)",
        f"({work.num_steps:,} x {each:,} + {work.num_evaluation_trajectories:,}) x {size_bytes:,}",
        (work.num_trajectories + work.num_evaluation_trajectories) * size_bytes,
    )


_TRAJECTORY, _TOKEN = 2_000, 16
"""Bytes in the lineage of a trajectory and of its tokens, with indices: 1,300 were measured for one of 75 tokens."""
