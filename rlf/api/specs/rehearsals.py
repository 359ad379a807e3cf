"""Rehearsals: the job that would go to the GPUs, run for real on this machine's CPU, stage by stage."""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.api.lineage import check_runs_folder
from rlf.api.running.start import RunOutcome, View, start
from rlf.api.specs.inputs import load_inputs
from rlf.api.specs.places import cpu_place, fit_to_cpu
from rlf.api.specs.plans import Checked, check_spec
from rlf.core.errors import RlfError, RunError
from rlf.engines.openrlhf.job.place import Place
from rlf.engines.openrlhf.rehearse.env import TORCHVISION, RehearsalEnvironment, rehearsal_environment
from rlf.engines.openrlhf.rehearse.spec import Change, place_changes, size_changes
from rlf.plan import Plan
from rlf.spec.looking.model_folder import folder_on_disk, model_location
from rlf.spec.looking.weights import read_config
from rlf.tools.failure import shorten
from rlf.types.events import CheckpointSaved, EvaluationFinished, Notice, RunEvent, StepFinished
from rlf.types.tool import Outcome, ToolResult
from rlf.types.trajectory import CallRecord

NOT_COVERED = (
    "NCCL, CUDA and the speed and memory of GPUs",
    "flash attention, packing and ring attention",
    "several processes for one model",
)
"""What no rehearsal on a CPU shows."""
_SAMPLER = "vLLM: a stand-in sampled; try `--vllm`"
_MAX_ERROR_CHARS = 120
"""Of a tool's error, as a stage tells it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One thing that has worked."""

    name: str
    words: str
    seconds: float
    """Since the stage before it."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A rehearsal that went through."""

    stages: tuple[Stage, ...]
    changes: tuple[Change, ...]
    """What was replaced, of the spec and for the machine."""
    not_covered: tuple[str, ...]


def setup(*, vllm: bool, tell: Callable[[str], None]) -> RehearsalEnvironment:
    """Makes the environment of rehearsals where it is missing. Raises RunError."""
    environment = rehearsal_environment()
    environment.setup(vllm=vllm, tell=tell)
    return environment


def rehearse(
    files: Sequence[Path], overrides: Sequence[str], *, vllm: bool, tell: Callable[[Stage], None]
) -> Rehearsal:
    """Runs the job of a spec on this machine with a small model, and reports what has worked as it does.

    Args:
        vllm: whether vLLM itself samples, and not its stand-in.

    Raises:
        SpecError, RlfError: the spec is wrong, or the environment is not made yet.
        RunError: the job failed; the folder that its message names is kept.
    """
    stages = _Stages(tell)
    plan = _checked(files, overrides).plan
    environment = _ready_environment(plan, vllm=vllm)
    changes = [*place_changes(plan.spec, vllm=vllm), *size_changes(plan.spec)]
    folder = Path(tempfile.mkdtemp(prefix="rlf-rehearsal-"))
    from rlf.engines.openrlhf.rehearse.model import rehearsal_model

    path = model_location(plan.spec.model.path)
    model, words = rehearsal_model(path, folder / "random-model", seed=plan.spec.seed)
    if model != path:
        changes.append(Change("model.path", model, "the weights are not what is rehearsed"))
    plan = check_spec(files, [*overrides, *(change.override for change in changes)]).plan
    stages.reach("spec", f"{plan.spec.name}: OpenRLHF's parser takes its options")
    stages.reach("model", words)
    _run(plan, folder, cpu_place(environment, plan, vllm=vllm), stages)
    stages.reach("end", "the job has ended by itself, and all its processes")
    tools = [tool.name for tool in plan.spec.tools if not tool.hidden]
    stages.reach("tools", "; ".join(_tool_words(name, stages.calls[name]) for name in tools) or "the spec has none")
    stages.reach("model saved", _changed(path=Path(model), saved=folder / "job" / "model"))
    shutil.rmtree(folder)
    return Rehearsal(tuple(stages.reached), tuple(changes), NOT_COVERED if vllm else (*NOT_COVERED, _SAMPLER))


def run_in_full(
    files: Sequence[Path],
    overrides: Sequence[str],
    *,
    vllm: bool,
    runs_folder: Path,
    view: View,
    command: Sequence[str],
) -> RunOutcome:
    """Runs a spec as it is, but for what a CPU cannot do, in the environment of rehearsals; kept like any other run.

    Raises:
        SpecError, RlfError: the spec is wrong, or the environment is not made yet.
        RunError: the run failed.
    """
    check_runs_folder(runs_folder)
    checked = _checked(files, overrides)
    fitted = fit_to_cpu(files, overrides, checked, _ready_environment(checked.plan, vllm=vllm), vllm=vllm)
    return start(
        fitted.checked.plan,
        warnings=fitted.checked.warnings,
        notices=fitted.notices,
        runs_folder=runs_folder,
        view=view,
        command=command,
        place=fitted.place,
    )


def _checked(files: Sequence[Path], overrides: Sequence[str]) -> Checked:
    checked = check_spec(files, overrides)
    kind = checked.plan.spec.engine.kind
    if kind != "openrlhf":
        raise RlfError(
            f"engine.kind: got {kind}; a rehearsal is of the engine `openrlhf`. Add `engine.kind=openrlhf` to the "
            "command."
        )
    return checked


def _ready_environment(plan: Plan, *, vllm: bool) -> RehearsalEnvironment:
    environment = rehearsal_environment()
    if not environment.is_ready(vllm=vllm):
        option = " --vllm" if vllm else ""
        raise RlfError(
            f"{environment.folder}: the environment of rehearsals is not there yet. Make it once with "
            f"`rlf rehearse --setup{option}`; it needs a network and a C++ compiler."
        )
    folder = folder_on_disk(plan.spec.model.path)
    if folder is not None and "vision_config" in read_config(folder) and not environment.takes_pictures:
        raise RlfError(
            f"model.path: {plan.spec.model.path!r} sees, and {environment.folder} has no {TORCHVISION}, which could "
            f"not be installed. Run `rlf rehearse --setup` where it can be had; {environment.log} has pip's words."
        )
    return environment


class _Stages:
    """What has been reached, in order."""

    def __init__(self, tell: Callable[[Stage], None]) -> None:
        self._tell = tell
        self._since = time.monotonic()
        self.reached: list[Stage] = []
        self.calls: defaultdict[str, list[ToolResult]] = defaultdict(list)
        """What the calls of training trajectories came to, by tool."""

    def reach(self, name: str, words: str) -> None:
        """Takes and tells one."""
        now = time.monotonic()
        stage = Stage(name, words, now - self._since)
        self._since = now
        self.reached.append(stage)
        self._tell(stage)

    def __call__(self, event: RunEvent) -> None:
        """Takes the events of the job's engine."""
        match event:
            case Notice() if "stage" in event.data:
                self.reach(str(event.data["stage"]), event.text)
            case Notice() if event.level != "info":
                self.reach(event.level, event.text)
            case StepFinished():
                for record in _calls(event):
                    self.calls[record.call.name].append(record.result)
                self.reach(f"step {event.step}", _step_words(event))
            case EvaluationFinished():
                words = f"{len(event.trajectories)} trajectories, {event.mode}, success {event.metrics['success']:.0%}"
                self.reach(f"evaluation after step {event.step}", words)
            case CheckpointSaved():
                self.reach("checkpoint", f"of step {event.step}, whole")


def _tool_words(name: str, results: Sequence[ToolResult]) -> str:
    """What calls of a tool came to, with the words of the first that failed."""
    failed = next((result.text for result in results if result.outcome is not Outcome.OK), None)
    why = "" if failed is None else f" ({shorten(' '.join(failed.split()), _MAX_ERROR_CHARS)})"
    return f"{name}: {_outcomes(results) or 'never called'}{why}"


def _outcomes(results: Iterable[ToolResult]) -> str:
    counted = Counter(str(result.outcome) for result in results)
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(counted.items()))


def _calls(event: StepFinished) -> Iterator[CallRecord]:
    for item in event.trajectories:
        yield from item.trajectory.calls


def _step_words(event: StepFinished) -> str:
    metrics = event.metrics
    unusable = [name for name in ("loss/policy", "policy/grad_norm") if not math.isfinite(metrics.get(name, math.nan))]
    if unusable:
        raise RunError(f"step {event.step} gave no finite {' and '.join(unusable)}")
    told = _outcomes(record.result for record in _calls(event)) or "none"
    broken = sum(item.reward is None for item in event.trajectories)
    empty = "; the rewards of each group are equal: nothing to learn" if metrics.get("groups/dead_share") == 1.0 else ""
    return (
        f"{len(event.trajectories)} trajectories, tool calls: {told}; unscorable: {broken}; "
        f"loss {metrics['loss/policy']:.3g}, gradient {metrics['policy/grad_norm']:.3g}{empty}"
    )


def _run(plan: Plan, folder: Path, place: Place, stages: _Stages) -> None:
    from rlf.engines.openrlhf.engine import OpenRlhfEngine

    engine = OpenRlhfEngine(plan, load_inputs(plan), folder, emit=stages, place=place, opening_calls=True)
    asyncio.run(engine.run())


def _changed(path: Path, saved: Path) -> str:
    """How far training moved the weights, in words. Raises RunError when the saved model does not load."""
    from rlf.engines.saved_model import load_saved

    new, old = (load_saved(folder).state_dict() for folder in (saved, path))
    # It is saved in bfloat16: what only that rounds has not moved.
    moved = max(float((new[name].float() - old[name].to(new[name].dtype).float()).abs().max()) for name in old)
    return f"it loads; training moved its weights by up to {moved:.2g}"
