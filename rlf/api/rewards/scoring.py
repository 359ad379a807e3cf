"""Rewards outside a run: terms from specs and reward files, tried on examples and on saved trajectories."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rlf.core.callables import forget_edited
from rlf.core.errors import Fault, RlfError, SpecError
from rlf.plan.compiler import compile as compile_plan
from rlf.rewards.examples import Trial as Trial
from rlf.rewards.examples import try_terms
from rlf.rewards.function import RewardFunction
from rlf.rewards.saved import read_saved
from rlf.rewards.term import RewardContext, Term
from rlf.spec import load_spec
from rlf.spec.meaning.validate import validate_item
from rlf.spec.models import RunSpec, TrainSpec
from rlf.spec.reading.interpolation import interpolate
from rlf.spec.reading.layers import Reading, absolute
from rlf.spec.reading.literal_keys import literal_keys_of
from rlf.spec.reading.nodes import Node
from rlf.tools import Executor, ToolDeclaration
from rlf.training.advantages import find_missing, recompute_advantages
from rlf.training.counting import counts
from rlf.types import Score, Scored, Trajectory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


logger = logging.getLogger(__name__)

FOLDER = Path("reward_specs")


@dataclass(frozen=True, slots=True)
class RewardFile:
    """The terms of one file, and the tools that they may call."""

    file: Path
    terms: tuple[Term, ...]
    tools: tuple[ToolDeclaration, ...]
    seed: int


def load_rewards(files: Sequence[Path], texts: Mapping[Path, str] | None = None) -> list[RewardFile]:
    """The terms of specs and reward files; of every file in `reward_specs` when none is named.

    Args:
        texts: what is read in place of files, by absolute path.

    Raises:
        SpecError: with every fault of every file.
        RlfError: there is no file.
    """
    forget_edited()
    found, faults = list[RewardFile](), list[Fault]()
    for file in files or sorted(FOLDER.glob("*.yaml")):
        try:
            found.append(_load_reward_file(file, texts or {}))
        except SpecError as error:
            faults += error.faults
    if faults:
        raise SpecError(faults)
    if not found:
        raise RlfError(f"{FOLDER}/: no reward is declared. Name a spec or a reward file.")
    return found


def _load_reward_file(file: Path, texts: Mapping[Path, str]) -> RewardFile:
    reading = Reading(texts)
    root = reading.read(absolute(file, Path.cwd()), "reward", None)
    if root is None:
        raise SpecError(reading.faults)
    if "kind" in root.mapping:
        return RewardFile(file, (_read_term(root),), (), 0)
    spec = compile_plan(load_spec([file], (), texts)).spec
    return RewardFile(file, spec.rewards, spec.tools, spec.seed)


def _read_term(root: Node) -> Term:
    """The term that a reward file holds."""
    faults: list[Fault] = []
    item = interpolate(root, faults)
    faults += literal_keys_of(item)
    term = validate_item(Term, "rewards", item, faults)  # type: ignore[type-abstract]  # validates to its kind
    if term is None or faults:
        raise SpecError(faults)
    return term


async def score(files: Sequence[RewardFile], trajectories: Sequence[Trajectory], *, step: int) -> list[Scored]:
    """Trajectories with the scores of all the files' terms."""
    terms = [term for file in files for term in file.terms]
    tools = [tool for file in files for tool in file.tools]
    async with _open_context(tools, files[0].seed) as context, RewardFunction(terms, context) as function:
        return await function.score_all(trajectories, step=step)


async def try_rewards(files: Sequence[RewardFile]) -> list[Trial]:
    """The trials of each file's terms."""
    trials = list[Trial]()
    for file in files:
        async with _open_context(file.tools, file.seed) as context:
            trials += [replace(trial, file=file.file) for trial in await try_terms(file.terms, context)]
    return trials


@asynccontextmanager
async def _open_context(tools: Sequence[ToolDeclaration], seed: int) -> AsyncIterator[RewardContext]:
    async with Executor(tools, seed=seed) as executor:
        yield RewardContext(executor.for_rewards, seed, notify=tell)


def tell(level: str, text: str) -> None:
    """Logs what a term reports; an alarm as an error."""
    logger.log(logging.getLevelNamesMapping().get(level.upper(), logging.ERROR), "%s", text)


@dataclass(frozen=True, slots=True)
class Saved:
    """Trajectories that were scored before."""

    source: str
    """The run with phase and step, or the file."""
    step: int
    """What schedules and seeds of terms go by."""
    trajectories: Sequence[Scored]


def saved_in_run(name: str, runs_folder: Path, *, phase: str, step: int | None) -> Saved:
    """The trajectories of one step of a run, or of an evaluation; of the latest one without `step`.

    Raises:
        RlfError: there are none.
    """
    from rlf.api.lineage import open_reader
    from rlf.lineage.records import TrajectoryFilter

    with open_reader(runs_folder) as reader:
        run_id = reader.get_run(name).record.id
        if step is None:
            step = reader.trajectory(run_id, k=0, phase=phase).summary.step
        heads = reader.trajectories(run_id, TrajectoryFilter(phase=phase, step=step))
        whole = [stored.scored for head in heads if (stored := reader.whole(run_id, head)) is not None]
    if not whole:
        raise RlfError(f"run {run_id}: no trajectory of {phase} step {step} is kept. Name another step.")
    return Saved(f"{run_id} {phase} step {step}", step, whole)


def saved_in_file(path: Path) -> Saved:
    """The trajectories of a JSONL file. Raises RlfError."""
    return Saved(str(path), 1, read_saved(path))


@dataclass(frozen=True, slots=True)
class ScoredSide:
    """A trajectory's scores, before or after."""

    reward: float | None
    scores: tuple[Score, ...]
    advantage: float | None
    """By the spec's estimator; None where it has none."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """One trajectory before and after."""

    id: str
    task: str
    before: ScoredSide
    after: ScoredSide
    JSON_PROPERTIES: ClassVar = ("change", "changes")

    @property
    def change(self) -> float | None:
        """Change of the reward; None if one of them is missing."""
        if self.before.reward is None or self.after.reward is None:
            return None
        return self.after.reward - self.before.reward

    @property
    def changes(self) -> dict[str, float]:
        """Of each term's contribution, in the order of the new terms, then what was there before alone."""
        before = {score.term: score.contribution for score in self.before.scores}
        after = {score.term: score.contribution for score in self.after.scores}
        return {term: after.get(term, 0.0) - before.get(term, 0.0) for term in (*after, *(before.keys() - after))}


@dataclass(frozen=True, slots=True)
class Rescoring:
    """Saved trajectories with the scores of a spec's terms."""

    source: str
    no_advantages: str | None
    """Why advantages cannot be recomputed, in words; None where they can."""
    trajectories: tuple[Rescored, ...]


async def rescore(spec: RunSpec, saved: Saved) -> Rescoring:
    """Scores saved trajectories with a spec's terms and recomputes advantages by its estimator.

    A penalty on the distance to a reference is left out of both, since it needs the models.
    """
    async with _open_context(spec.tools, spec.seed) as context, RewardFunction(spec.rewards, context) as function:
        after = await function.score_all([item.trajectory for item in saved.trajectories], step=saved.step)
    missing = find_missing(spec.train.algorithm)
    sides = zip(_make_sides(saved.trajectories, spec.train), _make_sides(after, spec.train), strict=True)
    found = [
        Rescored(scored.trajectory.id, scored.trajectory.task.id, *both)
        for scored, both in zip(after, sides, strict=True)
    ]
    return Rescoring(saved.source, missing and f"no advantages: {missing}", tuple(found))


def _make_sides(scored: Sequence[Scored], train: TrainSpec) -> list[ScoredSide]:
    pairs = zip(scored, _compute_advantages(scored, train), strict=True)
    return [ScoredSide(each.reward, each.scores, advantage) for each, advantage in pairs]


def _compute_advantages(scored: Sequence[Scored], train: TrainSpec) -> list[float | None]:
    """Mean advantage over each trajectory's sampled tokens; None where it does not count, or models are needed."""
    from rlf.training.batch import make_batch

    used = [item for item in scored if counts(item)]
    if find_missing(train.algorithm) or not used:
        return [None] * len(scored)
    means = iter(recompute_advantages(train.algorithm, make_batch(used).advantage_input(train.reward_clip)))
    return [next(means) if counts(item) else None for item in scored]


def rescoring_spec(files: Sequence[Path], overrides: Sequence[str]) -> RunSpec:
    """A spec, checked without its data and model. Raises SpecError."""
    return compile_plan(load_spec(files, overrides)).spec
