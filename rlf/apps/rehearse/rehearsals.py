"""Rehearsals: the run that would go elsewhere, for real on this machine's CPU, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.engines.engine import Engine, SpecChange, engine_of
from rlf.runs.place import check_runs_folder
from rlf.runs.plans import CheckedSpec, check_spec
from rlf.runs.sink import RunOutcome, View
from rlf.runs.start import start
from rlf.spec.engines import ENGINES, Feature, engines_with


@dataclass(frozen=True, slots=True)
class RehearsalStage:
    """One thing that has worked."""

    name: str
    words: str
    seconds: float
    """Since the stage before it."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A rehearsal that went through."""

    stages: tuple[RehearsalStage, ...]
    changes: tuple[SpecChange, ...]
    """What was replaced, of the spec and for the machine."""
    not_covered: tuple[str, ...]


def setup(*, vllm: bool, tell: Callable[[str], None]) -> str:
    """Makes the place of rehearsals if it is missing. Returns the command that runs a spec in it. Raises RunError."""
    name = engines_with(Feature.REHEARSAL)[0]
    engine = ENGINES.get(name)
    assert issubclass(engine, Engine), f"{engine} has no rehearsals"
    folder, command = engine.make_rehearsals(vllm=vllm, tell=tell)
    tell(f"ready: {folder}; to run a spec of engine `{name}` in it:")
    return f"{command} run SPEC engine.kind={name}"


def rehearse(
    files: Sequence[Path], overrides: Sequence[str], *, vllm: bool, tell: Callable[[RehearsalStage], None]
) -> Rehearsal:
    """Runs the job of a spec on this machine with a small model, and reports what has worked as it does.

    Args:
        vllm: whether vLLM itself samples, and not its stand-in.

    Raises:
        SpecError, RlfError: the spec is wrong, or the place of rehearsals is not made yet.
        RunError: the job failed; the folder that its message names is kept.
    """
    stages, since = list[RehearsalStage](), time.monotonic()

    def reach(name: str, words: str) -> None:
        nonlocal since
        before, since = since, time.monotonic()
        stages.append(RehearsalStage(name, words, since - before))
        tell(stages[-1])

    loaded = _check_rehearsable(files, overrides).loaded
    done = engine_of(loaded.spec).rehearse(loaded, reach, vllm=vllm)
    return Rehearsal(tuple(stages), done.changes, done.not_covered)


def run_in_full(
    files: Sequence[Path],
    overrides: Sequence[str],
    *,
    vllm: bool,
    runs_folder: Path,
    view: View,
    command: Sequence[str],
) -> RunOutcome:
    """Runs a spec as it is, but for what a CPU cannot do, at the place of rehearsals; kept like any other run.

    Raises:
        SpecError, RlfError: the spec is wrong, or the place of rehearsals is not made yet.
        RunError: the run failed.
    """
    check_runs_folder(runs_folder)
    checked = _check_rehearsable(files, overrides)
    spec = checked.plan.spec
    placed = checked.fit(engine_of(spec).fit_rehearsal(spec, vllm=vllm))
    return start(placed, runs_folder=runs_folder, view=view, command=command)


def _check_rehearsable(files: Sequence[Path], overrides: Sequence[str]) -> CheckedSpec:
    checked = check_spec(files, overrides)
    kind, others = checked.plan.spec.engine.kind, engines_with(Feature.REHEARSAL)
    if kind not in others:
        names = " or ".join(f"`{name}`" for name in others)
        raise RlfError(
            f"engine.kind: got {kind}; only the engine {names} has rehearsals. Add `engine.kind={others[0]}` to the "
            "command."
        )
    return checked
