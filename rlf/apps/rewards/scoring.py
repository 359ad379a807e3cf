"""Rewards outside a run: terms from specs and reward files, tried on examples and on saved trajectories."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from rlf.apps.rewards.examples import Trial, try_terms
from rlf.core.errors import RlfError, SpecError
from rlf.core.registry import nearest
from rlf.data import open_tasks
from rlf.python.specs import DEFAULT_RUNS, AnyPath, Spec, as_command, to_parts
from rlf.rewards import RULES, TERM_KINDS, Rule
from rlf.rewards.facts import TrajectoryFacts
from rlf.rewards.function import RewardFunction
from rlf.rewards.labels import read_json_lines
from rlf.rewards.term import RewardContext, Term
from rlf.runs.declared import RewardFile, load_rewards, rescoring_spec, scored_step, tell
from rlf.spec.facts import KeyFact, key_facts
from rlf.spec.models import RunSpec, TrainSpec
from rlf.tools import Executor, ToolDeclaration
from rlf.training.counting import counts
from rlf.training.evaluation import find_missing, recompute_advantages
from rlf.types import Score, Scored, Trajectory
from rlf.types.written import from_row

_MOST_GOLDS = 5
"""Shown of each form."""


async def score_files(files: Sequence[RewardFile], trajectories: Sequence[Trajectory], *, step: int) -> list[Scored]:
    """Trajectories with the scores of all the files' terms."""
    terms = [term for file in files for term in file.terms]
    tools = [tool for file in files for tool in file.tools]
    async with _open_context(tools, files[0].seed) as context, RewardFunction(terms, context) as function:
        return await function.score_all(trajectories, step=step)


async def try_reward_files(files: Sequence[RewardFile]) -> list[Trial]:
    """The trials of each file's terms."""
    trials = list[Trial]()
    for file in files:
        async with _open_context(file.tools, file.seed) as context:
            found = await try_terms(file.terms, context, first_row(file))
            trials += [replace(trial, file=file.file) for trial in found]
    return trials


def first_row(file: RewardFile) -> TrajectoryFacts | None:
    """The first training row of a spec, on which its terms are tried; None where there is none that can be read."""
    if file.data is None:
        return None
    try:
        task = next(iter(open_tasks(file.data.model_dump(), None)))
    except (RlfError, StopIteration):
        return None
    return TrajectoryFacts(question=task.question, gold=task.answer, columns=dict(task.columns))


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


# Trajectories in a JSONL file, one a line: as `rlf runs export` writes them, or facts as `tests:` have them.


class SavedTrajectory(TrajectoryFacts):
    """One line of the file."""

    id: str | None = None
    """Its name in reports; None: its line's number."""
    task: str | None = None
    """What the rollouts of one task share, for advantages; None: the question."""
    reward: float | None = None
    """The reward it had; None: unknown."""
    scores: Mapping[str, float] = Field(default={})
    """The terms' values it had, by name, at weight 1."""

    def scored(self, number: int) -> Scored:
        """The trajectory with what it had; `number` is the line's."""
        name = self.id or f"line {number}"
        trajectory = self.trajectory(name, task_id=self.task or self.question or name)
        scores = tuple(Score(term, value, 1.0) for term, value in self.scores.items())
        return Scored(trajectory, scores, self.reward, success=None)


def read_saved(path: Path) -> list[Scored]:
    """The trajectories of a file. Raises RlfError, or SpecError with every line that is wrong."""
    found = read_json_lines(path, "trajectories", _read_saved_line)
    if not found:
        raise RlfError(f"{path}: holds no trajectory; expected one JSON object a line. Name another file.")
    return found


def _read_saved_line(values: Any, number: int) -> Scored:
    if isinstance(values, dict) and "scored" in values:
        return from_row(values)
    return SavedTrajectory.model_validate(values).scored(number)


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


async def rescore_saved(spec: RunSpec, saved: SavedTrajectories) -> Rescoring:
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
    means = iter(
        recompute_advantages(
            train.algorithm,
            make_batch(used, reads_turns=train.algorithm.reads_turns).advantage_input(train.reward_clip),
        )
    )
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
class ShownGold:
    """A gold answer of a spec's data, and what a rule reads of it."""

    term: str
    row: str
    gold: str
    form: str
    """`number`, `date`, `items`, `choice`, `mathematics` or `text`."""
    value: str
    """Equal for equal golds; of a number with a unit in the first unit of its dimension."""
    fault: str
    """Why it is not what the rule compares; empty where it is."""


@dataclass(frozen=True, slots=True)
class ShownReward:
    """A kind or a rule with its own keys, or a spec with what its rules read of its golds."""

    name: str
    text: str
    keys: tuple[KeyFact, ...]
    golds: tuple[ShownGold, ...] = ()
    """Of each rule and form the first, with a fault or without."""


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
        close = nearest(name, list(models))
        raise RlfError(f"no kind and no rule {name!r}{close} (known: {', '.join(models)}). Name one of these.")
    model = models[name]
    base = Rule if issubclass(model, Rule) else Term
    facts = [fact for fact in key_facts(model) if fact.name not in base.model_fields]
    return ShownReward(name, inspect.cleandoc(model.__doc__ or ""), tuple(facts))


def describe_golds(files: Sequence[Path], overrides: Sequence[str]) -> ShownReward:
    """What the rules of a spec read of its golds. Raises RlfError."""
    from rlf.data import load_tasks

    try:
        spec = rescoring_spec(files, overrides)
    except SpecError:
        load_rewards(files, overrides)  # raises again, but for a file that declares a term
        raise RlfError(
            f"{files[0]}: declares a term and no data, so there are no golds to read. Name a spec."
        ) from None
    sets = [data for data in (spec.data.train, spec.data.eval) if data is not None]
    declared = tuple(tool.name for tool in spec.tools)
    tasks = [task for data in sets for task in load_tasks(**data.model_dump(), declared=declared)]
    shown, lines = list[ShownGold](), list[str]()
    for term in spec.rewards:
        if not (isinstance(term, Rule) and term.needs_answer):
            continue
        counts = Counter[tuple[str, bool]]()
        for task in tasks:
            for gold, read in term.read_golds(task.answer):
                counts[read.form, bool(read.fault)] += 1
                if counts[read.form, bool(read.fault)] <= _MOST_GOLDS:
                    shown.append(ShownGold(term.name, task.id, gold, read.form, read.value, read.fault))
        forms = (f"{number} {form}{' with a fault' * fault}" for (form, fault), number in counts.most_common())
        lines.append(f"{term.name} ({term.rule}): golds are {', '.join(forms)}.")
    return ShownReward(str(files[0]), "\n".join(lines) or "No rule of the spec reads golds.", (), tuple(shown))


def _find_models() -> dict[str, type[Term]]:
    kinds = {name: TERM_KINDS.get(name) for name in TERM_KINDS.names() if name != "rule"}
    return {**kinds, **{name: RULES.get(name) for name in RULES.names()}}


def _describe_term(file: Path, term: Term) -> RewardTerm:
    kind = str(getattr(term, "rule", term.kind))
    facts = (kind, _show_weight(term), _show_gate(term), term.required, term.stage, len(term.tests))
    return RewardTerm(file, term.name, *facts, _first_line(type(term)))


def _show_weight(term: Term) -> str:
    if term.hidden:
        return "hidden" if term.every == 1 else f"hidden, 1 in {term.every}"
    first, later = term.weight_at(1), term.weight_at(10**9)
    return f"{first:g}" if first == later else f"{first:g} to {later:g}"


def _show_gate(term: Term) -> str:
    required = [] if term.required is False else ["required"]
    gate = [] if term.when is None else [f"when {term.when.term}"]
    return ", ".join([*gate, *required])


def _first_line(model: type[Term]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def try_rewards(spec: Spec = (), *, runs_folder: AnyPath = DEFAULT_RUNS) -> list[Trial]:
    """Tries terms on their `tests:` and on gold, empty, malformed and long trajectories.

    Args:
        spec: a spec, or several and reward files; without any, every file in `reward_specs`.
    """
    with as_command():
        terms = load_rewards(*to_parts(spec, "rewards", ("kind",), runs_folder))
        return asyncio.run(try_reward_files(terms))


def score(
    trajectories: Sequence[Trajectory | Scored], rewards: Spec, *, step: int = 1, runs_folder: AnyPath = DEFAULT_RUNS
) -> list[Scored]:
    """Scores trajectories with the terms of a spec, or of reward files taken together.

    Args:
        trajectories: of a run, as `run.scored()` gives them, or made by hand.
        step: what schedules and seeds of terms go by.
    """
    plain = [each.trajectory if isinstance(each, Scored) else each for each in trajectories]
    with as_command():
        terms = load_rewards(*to_parts(rewards, "rewards", ("kind",), runs_folder))
        return asyncio.run(score_files(terms, plain, step=step))
