"""Rewards outside a run: terms from specs and reward files, tried on examples and on saved trajectories."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rlf.core.errors import RlfError
from rlf.rewards import RULES, TERM_KINDS, Rule
from rlf.rewards.examples import Trial, try_terms
from rlf.rewards.facts import read_saved
from rlf.rewards.function import RewardFunction
from rlf.rewards.term import RewardContext, Term
from rlf.runs.rewards import RewardFile, scored_step, tell
from rlf.spec.facts import KeyFact, key_facts
from rlf.spec.models import RunSpec, TrainSpec
from rlf.tools import Executor, ToolDeclaration
from rlf.training.counting import counts
from rlf.training.evaluation import find_missing, recompute_advantages
from rlf.types import Score, Scored, Trajectory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


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


@dataclass(frozen=True, slots=True)
class SavedTrajectories:
    """Trajectories that were scored before."""

    source: str
    """The run with phase and step, or the file."""
    step: int
    """What schedules and seeds of terms go by."""
    trajectories: Sequence[Scored]


def saved_in_run(name: str, runs_folder: Path, *, phase: str, step: int | None) -> SavedTrajectories:
    """The trajectories of one step of a run, or of an evaluation; of the latest one without `step`.

    Raises:
        RlfError: there are none.
    """
    run_id, step, scored = scored_step(name, runs_folder, phase=phase, step=step)
    return SavedTrajectories(f"{run_id} {phase} step {step}", step, scored)


def saved_in_file(path: Path) -> SavedTrajectories:
    """The trajectories of a JSONL file. Raises RlfError."""
    return SavedTrajectories(str(path), 1, read_saved(path))


@dataclass(frozen=True, slots=True)
class ScoredSide:
    """A trajectory's scores, before or after."""

    reward: float | None
    scores: tuple[Score, ...]
    advantage: float | None
    """By the spec's estimator; None where it has none."""


@dataclass(frozen=True, slots=True)
class RescoredTrajectory:
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
    trajectories: tuple[RescoredTrajectory, ...]


async def rescore(spec: RunSpec, saved: SavedTrajectories) -> Rescoring:
    """Scores saved trajectories with a spec's terms and recomputes advantages by its estimator.

    A penalty on the distance to a reference is left out of both, since it needs the models.
    """
    async with (
        _open_context(spec.tools, spec.seed) as context,
        RewardFunction(spec.rewards, context, spec.success) as function,
    ):
        after = await function.score_all([item.trajectory for item in saved.trajectories], step=saved.step)
        after = function.settle(after, step=saved.step)
    missing = find_missing(spec.train.algorithm)
    sides = zip(_make_sides(saved.trajectories, spec.train), _make_sides(after, spec.train), strict=True)
    found = [
        RescoredTrajectory(scored.trajectory.id, scored.trajectory.task.id, *both)
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


# Kinds of reward terms, and the terms of a file.


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """A declared term. Its other keys may hold credentials."""

    file: Path
    name: str
    kind: str
    """Its kind; of a rule, the rule."""
    weight: str
    gate: str
    required: bool | float
    stage: str
    num_tests: int
    text: str = field(metadata={"json": None})
    """What it is, in a sentence."""


@dataclass(frozen=True, slots=True)
class RewardKind:
    """A kind, or a rule."""

    name: str
    text: str
    is_rule: bool = field(metadata={"json": None})


@dataclass(frozen=True, slots=True)
class ShownReward:
    """A kind or a rule with its own keys."""

    name: str
    text: str
    keys: tuple[KeyFact, ...]


def describe_terms(files: Sequence[RewardFile]) -> list[RewardTerm]:
    """The terms of files."""
    return [_describe_term(file.file, term) for file in files for term in file.terms]


def list_kinds() -> list[RewardKind]:
    """Every kind but `rule`, then every rule."""
    return [
        RewardKind(name, _first_line(model), "rule" in model.model_fields) for name, model in _find_models().items()
    ]


def describe_kind(name: str) -> ShownReward:
    """Describes a kind or a rule, and its keys. Raises RlfError where there is none."""
    models = _find_models()
    if name not in models:
        raise RlfError(f"no kind and no rule {name!r} (known: {', '.join(models)}). Name one of these.")
    model = models[name]
    base = Rule if issubclass(model, Rule) else Term
    facts = [fact for fact in key_facts(model) if fact.name not in base.model_fields]
    return ShownReward(name, inspect.cleandoc(model.__doc__ or ""), tuple(facts))


def _find_models() -> dict[str, type[Term]]:
    kinds = {name: TERM_KINDS.get(name) for name in TERM_KINDS.names() if name != "rule"}
    return {**kinds, **{name: RULES.get(name) for name in RULES.names()}}


def _describe_term(file: Path, term: Term) -> RewardTerm:
    kind = str(getattr(term, "rule", term.kind))
    facts = (kind, _show_weight(term), _show_gate(term), term.required, term.stage, len(term.tests))
    return RewardTerm(file, term.name, *facts, _first_line(type(term)))


def _show_weight(term: Term) -> str:
    first, later = term.weight_at(1), term.weight_at(10**9)
    return f"{first:g}" if first == later else f"{first:g} to {later:g}"


def _show_gate(term: Term) -> str:
    required = [] if term.required is False else ["required"]
    gate = [] if term.when is None else [f"when {term.when.term}"]
    return ", ".join([*gate, *required])


def _first_line(model: type[Term]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]
