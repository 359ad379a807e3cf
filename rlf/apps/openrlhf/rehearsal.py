"""A rehearsal: a job of two small steps on this CPU, stage by stage."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rlf.apps.openrlhf.rehearsal_model import rehearsal_model, size_changes
from rlf.apps.openrlhf.rehearsal_place import CpuPlace
from rlf.apps.openrlhf.run import OpenRlhfRun
from rlf.core.errors import RunError
from rlf.core.files import scratch
from rlf.core.text import shorten
from rlf.engines.engine import RehearsalReport, SpecChange, load_inputs
from rlf.engines.saved_model import load_saved
from rlf.plan import compile as compile_plan
from rlf.rewards.term import Term
from rlf.spec import LoadedSpec
from rlf.spec.load import change_spec
from rlf.spec.model_files import model_location
from rlf.training.outages import Outages
from rlf.types.events import CheckpointSaved, EvaluationFinished, Notice, RunEvent, StepFinished
from rlf.types.tool import Outcome, ToolResult
from rlf.types.trajectory import CallRecord
from rlf.types.world import WorldRecord

_NOT_COVERED = (
    "NCCL, CUDA and the speed and memory of GPUs",
    "flash attention, packing and ring attention",
    "several processes for one model",
    "waiting for what is down: each trajectory is played once",
)
"""What no rehearsal on a CPU shows."""
_SAMPLER = "vLLM: a stand-in sampled; try `--vllm`"
_MAX_ERROR_CHARS = 120
"""Of a tool's error, as a stage reports it."""

Reach = Callable[[str, str], None]


def rehearse_job(loaded: LoadedSpec, reach: Reach, cpu: CpuPlace) -> RehearsalReport:
    """Runs the job of a checked spec with a small model, and reports what has worked as it does.

    Raises:
        RunError: the job failed; the folder that its message names is kept.
    """
    with scratch("rlf-rehearsal", keeps=(RunError,)) as folder:
        return _rehearse_in(folder, loaded, reach, cpu)


def _rehearse_in(folder: Path, loaded: LoadedSpec, reach: Reach, cpu: CpuPlace) -> RehearsalReport:
    spec = loaded.spec
    changes = [*cpu.fit(spec).changes, *size_changes(spec)]
    path = model_location(spec.model.path)
    model, words = rehearsal_model(path, folder / "random-model", seed=spec.seed)
    if model != path:
        changes.append(SpecChange("model.path", model, "a rehearsal does not test the weights"))
    plan = compile_plan(change_spec(loaded, [change.override for change in changes]))
    reach("spec", f"{plan.spec.name}: OpenRLHF's parser takes its options")
    reach("model", words)
    events = _Events(reach, plan.spec.rewards)
    place = cpu.for_job(plan.spec)
    run = OpenRlhfRun(plan, load_inputs(plan), folder, emit=events, place=place, opening_calls=True)
    asyncio.run(run.run())
    reach("end", "the job and all its processes ended by themselves")
    tools = [tool.name for tool in plan.spec.shown_tools]
    if not plan.spec.imitates_only:
        reach("tools", "; ".join(_tool_words(name, events.calls[name]) for name in tools) or "the spec has none")
        if plan.spec.env is not None:
            worlds = events.worlds
            names = sorted({name for world in worlds for name in world.scores})
            values = {name: [world.scores[name] for world in worlds if name in world.scores] for name in names}
            scores = [f"{name} from {min(found):.3g} to {max(found):.3g}" for name, found in values.items()]
            failed = Counter(str(world.failed) for world in worlds if world.failed is not None)
            failures = [f"{number} failed in {phase}" for phase, number in sorted(failed.items())]
            reach("world", "; ".join([f"{len(worlds)} of training trajectories", *scores, *failures]))
    reach("model saved", _changed(path=Path(model), saved=folder / "job" / "model"))
    sampled_by_other = not (cpu.vllm or plan.spec.imitates_only)
    return RehearsalReport(tuple(changes), (*_NOT_COVERED, _SAMPLER) if sampled_by_other else _NOT_COVERED)


class _Events:
    """Takes the events of the job, and reports them as stages."""

    def __init__(self, reach: Reach, terms: Sequence[Term]) -> None:
        self._reach = reach
        self._terms = terms
        self.calls: defaultdict[str, list[ToolResult]] = defaultdict(list)
        """What the calls of training trajectories came to, by tool."""
        self.worlds: list[WorldRecord] = []
        """The worlds of training trajectories."""

    def __call__(self, event: RunEvent) -> None:
        match event:
            case Notice() if "stage" in event.data:
                self._reach(str(event.data["stage"]), event.text)
            case Notice() if event.level != "info":
                self._reach(event.level, event.text)
            case StepFinished():
                for record in _iterate_calls(event):
                    self.calls[record.call.name].append(record.result)
                self.worlds += [world for item in event.trajectories if (world := item.trajectory.world) is not None]
                self._reach(f"step {event.step}", _step_words(event))
                if (words := _outage_words(event, self._terms)) is not None:
                    self._reach("outage", words)
            case EvaluationFinished():
                success = event.metrics.get("success")
                came = "none could be scored" if success is None else f"success {success:.0%}"
                words = f"{len(event.trajectories)} trajectories, {event.mode}, {came}"
                self._reach(f"evaluation after step {event.step}", words)
            case CheckpointSaved():
                self._reach("checkpoint", f"of step {event.step}, whole")


def _tool_words(name: str, results: Sequence[ToolResult]) -> str:
    """Outcomes of a tool's calls, with the words of the first that failed."""
    failed = next((result.text for result in results if result.outcome is not Outcome.OK), None)
    why = "" if failed is None else f" ({shorten(' '.join(failed.split()), _MAX_ERROR_CHARS)})"
    return f"{name}: {_outcomes(results) or 'never called'}{why}"


def _outcomes(results: Iterable[ToolResult]) -> str:
    counted = Counter(str(result.outcome) for result in results)
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(counted.items()))


def _iterate_calls(event: StepFinished) -> Iterator[CallRecord]:
    for item in event.trajectories:
        yield from item.trajectory.calls


def _step_words(event: StepFinished) -> str:
    metrics = event.metrics
    unusable = [name for name in ("loss/policy", "policy/grad_norm") if not math.isfinite(metrics.get(name, math.nan))]
    if unusable:
        raise RunError(f"step {event.step} had no finite {' and '.join(unusable)}")
    numbers = f"loss {metrics['loss/policy']:.3g}, gradient {metrics['policy/grad_norm']:.3g}"
    if "demonstrations" in metrics:
        heldout = f", held out {metrics['loss/heldout']:.3g}" if "loss/heldout" in metrics else ""
        return f"{len(event.trajectories)} demonstrations; {numbers}{heldout}"
    outcomes = _outcomes(record.result for record in _iterate_calls(event)) or "none"
    broken = sum(item.reward is None for item in event.trajectories)
    empty = "; the rewards of each group are equal: nothing to learn" if metrics.get("groups/dead_share") == 1.0 else ""
    return f"{len(event.trajectories)} trajectories, tool calls: {outcomes}; unscorable: {broken}; {numbers}{empty}"


def _outage_words(event: StepFinished, terms: Sequence[Term]) -> str | None:
    """What a run would wait for after such a step; a rehearsal plays each trajectory once, whatever broke it."""
    outages = Outages(0.0, lambda level, text: None, terms)
    for item in event.trajectories:
        outages.note_now(item)
    cause = outages.find_excess(event.trajectories)
    if cause is None:
        return None
    why = shorten(" ".join(cause.error.split()), _MAX_ERROR_CHARS)
    return f"a run would wait for {cause.name} here, for engine.outage_s at most, and then end: {why}"


def _changed(path: Path, saved: Path) -> str:
    """How far training moved the weights, in words. Raises RunError when the saved model does not load."""
    new, old = (load_saved(folder).state_dict() for folder in (saved, path))
    # It is saved in bfloat16: what only that rounds has not moved.
    moved = max(float((new[name].float() - old[name].to(new[name].dtype).float()).abs().max()) for name in old)
    return f"it loads; training moved its weights by up to {moved:.2g}"
