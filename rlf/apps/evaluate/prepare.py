"""Prepares an evaluation from its options; everything is checked before it begins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.identity import hash_json
from rlf.data.files import missing_column
from rlf.data.source import read_rows
from rlf.endpoints.spec import EndpointSpec
from rlf.lineage.records import BRANCH, CHAT, EVALUATION, Run
from rlf.lineage.values import num_before
from rlf.plan import Plan
from rlf.runs.place import open_reader
from rlf.runs.players import EvaluationSettings
from rlf.runs.targets import Target, open_target
from rlf.spec.models import Schedule
from rlf.training.counting import draw_tasks
from rlf.types import Notice
from rlf.types.events import GREEDY, SAMPLED
from rlf.types.task import Task

# The options of an evaluation, and which of them decide its numbers.

BATCH = 128
"""Trajectories that are played together under `schedule: logical`: what a killed evaluation plays again, at most."""


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of one evaluation; None leaves a value to the spec."""

    files: Sequence[Path] = ()
    overrides: Sequence[str] = ()
    data: str | None = None
    num_samples: int | None = None
    temperature: float | None = None
    greedy: bool = False
    """Whether every question is answered greedily, once, and not sampled."""
    limit: int | None = None
    max_concurrency: int | None = None
    groups: int | None = None
    """As of `EvaluationSettings`."""

    def __post_init__(self) -> None:
        if self.temperature == 0.0:
            raise RlfError("--temperature: got 0, at which every sample is the same. Write --greedy instead.")
        if self.greedy and (self.num_samples is not None or self.temperature is not None):
            option = "-k" if self.num_samples is not None else "--temperature"
            raise RlfError(
                f"--greedy and {option}: greedy decoding gives one answer and has no temperature. Remove one of the "
                "two."
            )

    @property
    def changes(self) -> list[str]:
        """The options as overrides of a spec."""
        values = {
            "eval.num_samples": self.num_samples,
            "eval.temperature": self.temperature,
            "eval.limit": self.limit,
            "rollout.max_concurrency": self.max_concurrency,
        }
        return [*self.overrides, *(f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None)]

    @property
    def is_plain(self) -> bool:
        """Whether only the target is given, so that a recorded evaluation is repeated."""
        return self == EvaluationOptions()


@dataclass(frozen=True, slots=True)
class PlannedEvaluation:
    """An evaluation that can be played."""

    target: Target
    settings: EvaluationSettings
    plan: Plan
    """The target's; it names a model that stays, where that of the target does not."""
    tasks: Sequence[Task]
    repeats: Run | None = None
    """The run whose last evaluation is repeated, or the evaluation that is."""
    notices: tuple[Notice, ...] = ()

    @property
    def is_logical(self) -> bool:
        """Whether its batches follow a logical order: the same questions give the same tokens, bit for bit."""
        return self.target.endpoint is None and self.plan.spec.rollout.schedule is Schedule.LOGICAL

    @property
    def identity(self) -> str:
        """A hash of what decides the results."""
        return hash_json([self.plan.plan_hash, self.target.sha256, *map(str, self.settings.key)])


@contextmanager
def prepare(
    name: str | None, asked: EvaluationOptions, *, runs_folder: Path, endpoint: EndpointSpec | None = None
) -> Iterator[PlannedEvaluation]:
    """Prepares one target and its questions.

    Raises:
        RlfError: the target is no model, or nothing says what it is tried on.
        SpecError: the spec is wrong, names what is gone, or does not fit the model.
    """
    like = None if name is None else _recorded_evaluation(name, runs_folder)
    settings = None if like is None else EvaluationSettings.recorded(like.record)
    if settings is not None and {CHAT, BRANCH} & set(settings.modes):
        raise RlfError(f"run {name}: is a saved {settings.modes[0]} and has no questions to repeat. Name a model.")
    if settings is not None:
        name, served = settings.model or settings.target, settings.endpoint
        endpoint = None if served is None else EndpointSpec.model_validate(served)
    changes, notices = asked.changes, list[Notice]()
    if asked.data is not None:
        with open_target(name, asked.files, changes, runs_folder=runs_folder, endpoint=endpoint, like=like) as target:
            more, notices = _on_other_data(target, asked.data)
            changes += more
    with open_target(name, asked.files, changes, runs_folder=runs_folder, endpoint=endpoint, like=like) as target:
        groups = asked.groups if settings is None else settings.groups
        _refuse_without_questions(target, needs_eval=groups is None)
        assert target.checked is not None and target.plan is not None, f"{target.name} is not checked"
        if target.endpoint is not None:
            asyncio.run(_reach_endpoint(target.endpoint))
        if settings is None or not asked.is_plain:
            settings = _settings_of(target, asked)
        repeats = like
        if like is None and asked.is_plain and target.record is not None:
            with open_reader(runs_folder) as reader:
                repeats = reader.get_run(target.record.id)
        checked, tasks = target.checked, target.checked.inputs.evaluation
        if groups is not None:
            tasks = [task for _, task in draw_tasks(checked.inputs.train, target.spec.seed, 0, groups)]
        elif asked.limit is None and checked.num_eval_rows > len(tasks):
            num, limit = checked.num_eval_rows, len(tasks)
            text = f"the first {limit} of {num} questions are asked (`eval.limit`); --limit {num} asks all"
            notices = [*notices, Notice("info", text, {})]
        yield PlannedEvaluation(target, settings, _lasting_plan(target, like), tasks, repeats, tuple(notices))


async def _reach_endpoint(endpoint: EndpointSpec) -> None:
    """Raises RlfError where an endpoint cannot be used, before anything is written."""
    from rlf.endpoints.pool import open_pool

    await (await open_pool([endpoint])).close()


def _recorded_evaluation(name: str, runs_folder: Path) -> Run | None:
    """The evaluation that a name stands for; None where it names something else, as `latest` does: a trained run."""
    if num_before(name) is not None or "/" in name or Path(name).exists():
        return None
    try:
        with open_reader(runs_folder) as reader:
            run = reader.get_run(name)
    except RlfError:
        return None
    return run if run.record.engine == EVALUATION else None


def _refuse_without_questions(target: Target, *, needs_eval: bool) -> None:
    if target.plan is None:
        raise RlfError(
            f"{target.name}: it has no tools, questions or rewards for an evaluation. Name a spec, e.g. "
            f"`rlf eval {target.name} specs/search.yaml`."
        )
    if needs_eval and target.spec.data.eval is None:
        raise RlfError(
            f"{target.name}: its spec has no `data.eval`, so there are no questions. Write `--data FILE`, or "
            "`data.eval.path=FILE`."
        )


def _lasting_plan(target: Target, like: Run | None) -> Plan:
    """The plan as it is recorded: of a checkpoint, whose model's folder goes, it names the model that was trained."""
    assert target.plan is not None
    if target.record is None or target.model is None or Path(target.model).parent.name == target.record.id:
        return target.plan
    path = target.record.plan["spec"]["model"]["path"]
    spec = target.spec.model_copy(update={"model": target.spec.model.model_copy(update={"path": path})})
    return target.plan.model_copy(update={"spec": spec})


def _on_other_data(target: Target, path: str) -> tuple[list[str], list[Notice]]:
    """The changes by which a target is tried on a dataset, and what there is to report of them.

    Columns are those of the spec's own data. Where the dataset has no answers, terms that compare with them go.
    """
    spec = target.spec
    source = spec.data.eval or spec.data.train
    columns = source.model_dump(exclude_defaults=True, exclude={"path", "limit"}, mode="json") | {"path": path}
    changes = [f"data.eval={json.dumps(columns)}"]
    rows = read_rows(str(Path(path).absolute()) if Path(path).is_file() else path, source.config, source.split, None)
    if not rows or source.answer is None or missing_column(rows, source.answer) is None:
        return changes, []
    needing = [place for place, term in enumerate(spec.rewards) if term.needs_answer]
    if len(needing) == len(spec.rewards):
        raise RlfError(
            f"--data {path}: has no column {source.answer!r}, but every reward term compares with answers. Name the "
            "column that has them, e.g. `data.eval.answer=gold`, or a spec with rewards that need none."
        )
    changes[0] = f"data.eval={json.dumps(columns | {'answer': None})}"
    changes += [f"~rewards[{place}]" for place in reversed(needing)]
    names = ", ".join(spec.rewards[place].name for place in needing)
    text = f"{path} has no answers: {names} compare with answers and are left out"
    return changes, [Notice("warning", text, {"path": path, "terms": [spec.rewards[place].name for place in needing]})]


def _settings_of(target: Target, asked: EvaluationOptions) -> EvaluationSettings:
    has_greedy = target.spec.eval.greedy and asked.groups is None
    modes = (GREEDY,) if asked.greedy else (SAMPLED, GREEDY) if has_greedy else (SAMPLED,)
    logical = target.spec.rollout.schedule is Schedule.LOGICAL and target.endpoint is None
    batch = BATCH if logical and not asked.is_plain else None
    if asked.groups is not None:  # a step's, so that they share the sampler as in training
        batch = target.spec.train.prompts_per_step * target.spec.rollout.num_generations
    endpoint = None if target.endpoint is None else target.endpoint.model_dump(mode="json", exclude_defaults=True)
    model = target.name if target.record is None and target.endpoint is None else None
    return EvaluationSettings(target.name, modes, target.step or 0, batch, endpoint, model, asked.groups)
