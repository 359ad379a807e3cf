"""Reward terms outside of a run: those that specs and reward files declare, and where what they report goes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.core.callables import forget_edited
from rlf.core.errors import Fault, RlfError, SpecError
from rlf.plan.compiler import compile as compile_plan
from rlf.rewards.term import Term
from rlf.runs.tools import refuse_overrides
from rlf.spec import load_spec
from rlf.spec.code import literal_keys_of
from rlf.spec.layers import Reading, absolute, interpolate
from rlf.spec.models import DataSource, RunSpec
from rlf.spec.validate import validate_item
from rlf.tools import ToolDeclaration
from rlf.types import Scored

logger = logging.getLogger(__name__)

FOLDER = Path("reward_specs")


@dataclass(frozen=True, slots=True)
class RewardFile:
    """The terms of one file, and the tools that they may call."""

    file: Path
    terms: tuple[Term, ...]
    tools: tuple[ToolDeclaration, ...]
    seed: int
    data: DataSource | None = None
    """The training rows of a spec."""


def load_rewards(
    files: Sequence[Path], overrides: Sequence[str] = (), texts: Mapping[Path, str] | None = None
) -> list[RewardFile]:
    """The terms of specs and reward files; of every file in `reward_specs` when none is named.

    Args:
        overrides: of the specs.
        texts: what is read in place of files, by absolute path.

    Raises:
        SpecError: with every fault of every file.
        RlfError: there is no file.
    """
    forget_edited()
    found, faults = list[RewardFile](), list[Fault]()
    for file in files or sorted(FOLDER.glob("*.yaml")):
        try:
            found.append(_load_reward_file(file, texts or {}, overrides))
        except SpecError as error:
            faults += error.faults
    if faults:
        raise SpecError(faults)
    if not found:
        raise RlfError(f"{FOLDER}/: no reward is declared. Name a spec or a reward file.")
    return found


def _load_reward_file(file: Path, texts: Mapping[Path, str], overrides: Sequence[str]) -> RewardFile:
    reading = Reading(texts)
    root = reading.read(absolute(file, Path.cwd()), "reward", None)
    if root is None:
        raise SpecError(reading.faults)
    if "kind" in root.mapping:
        refuse_overrides(file, overrides)
        faults: list[Fault] = []
        item = interpolate(root, faults)
        faults += literal_keys_of(item)
        term = validate_item(Term, "rewards", item, faults)  # type: ignore[type-abstract]  # validates to its kind
        if term is None or faults:
            raise SpecError(faults)
        return RewardFile(file, (term,), (), 0)
    spec = compile_plan(load_spec([file], overrides, texts)).spec
    return RewardFile(file, spec.rewards, spec.tools, spec.seed, spec.data.train)


def rescoring_spec(files: Sequence[Path], overrides: Sequence[str]) -> RunSpec:
    """A spec, checked without its data and model. Raises SpecError."""
    return compile_plan(load_spec(files, overrides)).spec


def tell(level: str, text: str) -> None:
    """Logs what a term reports; an alarm as an error."""
    logger.log(logging.getLevelNamesMapping().get(level.upper(), logging.ERROR), "%s", text)


def scored_step(name: str, runs_folder: Path, *, phase: str, step: int | None) -> tuple[str, int, list[Scored]]:
    """A run's id, and every trajectory of one of its steps with its scores; of the latest step without `step`.

    Raises:
        RlfError: none is kept.
    """
    from rlf.lineage.records import TrajectoryFilter
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        run_id = reader.get_run(name).record.id
        if step is None:
            step = reader.trajectory(run_id, k=0, phase=phase).summary.step
        heads = reader.trajectories(run_id, TrajectoryFilter(phase=phase, step=step))
        whole = [stored.scored for head in heads if (stored := reader.whole(run_id, head)) is not None]
    if not whole:
        raise RlfError(f"run {run_id}: no trajectory of {phase} step {step} is kept. Name another step.")
    return run_id, step, whole
