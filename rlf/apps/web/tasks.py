"""The tasks of a fork: plain values in, the JSON of commands out. An app adds its own in `page.py`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.apps.web.settings import apps_with_page
from rlf.core.errors import RlfError, SpecError
from rlf.core.redact import Redactor
from rlf.python.specs import Check, check
from rlf.runs import declared as load

if TYPE_CHECKING:
    from rlf.apps.web.plan_values import PlanChange
    from rlf.runs.planning import PlanReport
    from rlf.runs.players import ShownPrompt

_MAX_ROWS = 1_000
"""Rows of a dataset that are looked at for lengths and duplicates."""


@dataclass(frozen=True, slots=True)
class DataRow:
    """One row as a task."""

    number: int
    task_id: str
    kind: str
    prompt: str
    answer: str
    num_characters: int


@dataclass(frozen=True, slots=True)
class DataPage:
    """Some rows of a spec's data."""

    which: str
    num_rows: int
    rows: tuple[DataRow, ...]
    lengths: tuple[tuple[int, int], ...]
    """A histogram: characters of the prompt from which a bar begins, and rows in it."""
    num_repeated: int
    """Rows whose prompt an earlier row has."""
    num_shared: int
    """Rows whose prompt the other set has too."""


def check_text(path: str, text: str | None, overrides: Sequence[str]) -> Check:
    """`rlf check` of a spec whose text may not be saved; of a tool or reward file the faults of that file alone."""
    part = path.partition("/")[0]
    if part in ("tool_specs", "reward_specs"):
        return _check_part(part, Path(path), text)
    return check([path], list(overrides), texts=None if text is None else {path: text})


def _check_part(part: str, file: Path, text: str | None) -> Check:
    from rlf.runs.declared import load_rewards
    from rlf.spec.layers import absolute

    texts = {} if text is None else {absolute(file, Path.cwd()): text}
    try:
        load.load_tools([file], texts=texts) if part == "tool_specs" else load_rewards([file], texts=texts)
    except SpecError as error:
        return Check(error.faults)
    return Check((), name=file.stem)


@dataclass(frozen=True, slots=True)
class PlannedText:
    """A plan beside the last run of its spec."""

    report: PlanReport
    last_run: str | None
    """The newest run with the spec's name; None where there is none."""
    changes: tuple[PlanChange, ...]
    """Values that differ from that run's."""


def plan_text(path: str, text: str | None, overrides: Sequence[str], runs: str = "runs") -> PlannedText:
    """`rlf plan` of a spec whose text may not be saved, and where it differs from the last run."""
    from rlf.apps.web.plan_values import find_plan_changes, last_run, plan_leaves
    from rlf.runs.planning import report_plan
    from rlf.spec.layers import absolute

    file = Path(path)
    texts = {} if text is None else {absolute(file, Path.cwd()): text}
    report = report_plan([file], list(overrides), gpu=None, runs_folder=Path(runs), texts=texts)
    before = last_run(Path(runs), report.name)
    if before is None:
        return PlannedText(report, None, ())
    now = {value.path: value.value for value in report.values}
    return PlannedText(report, before.record.id, find_plan_changes(plan_leaves(before), now))


def show_prompt(spec: str, overrides: Sequence[str]) -> ShownPrompt:
    """`rlf format show`: the first question as the model reads it, token by token, without secrets across tokens."""
    from rlf.runs.players import show_prompt

    found = show_prompt([Path(spec)], list(overrides))
    texts = Redactor(os.environ).pieces([token.text for token in found.tokens])
    tokens = (replace(token, text=text) for token, text in zip(found.tokens, texts, strict=True))
    return replace(found, tokens=tuple(tokens))


def show_data(spec: str, overrides: Sequence[str], which: str, begin: int, limit: int) -> DataPage:
    """Rows of a spec's data as tasks."""
    from rlf.runs.plans import check_spec

    inputs = check_spec([Path(spec)], list(overrides), trains=False).inputs
    by_name = {"train": inputs.train, "eval": inputs.evaluation}
    if which not in by_name:
        raise RlfError(f"got {which!r}; expected train or eval.")
    tasks = by_name.pop(which)
    prompts = [task.messages[-1].content for task in tasks[:_MAX_ROWS]]
    (other,) = by_name.values()
    shared = {task.messages[-1].content for task in other[:_MAX_ROWS]}
    rows = [
        DataRow(
            number=begin + place,
            task_id=task.id,
            kind=task.kind or "",
            prompt="\n".join(f"{message.role}: {message.content}" for message in task.messages),
            answer=task.answer if isinstance(task.answer, str) else repr(task.answer),
            num_characters=len(task.messages[-1].content),
        )
        for place, task in enumerate(tasks[begin : begin + limit])
    ]
    return DataPage(
        which=which,
        num_rows=len(tasks),
        rows=tuple(rows),
        lengths=_histogram([len(prompt) for prompt in prompts]),
        num_repeated=len(prompts) - len(set(prompts)),
        num_shared=sum(prompt in shared for prompt in prompts),
    )


def _histogram(values: Sequence[int], num_bars: int = 20) -> tuple[tuple[int, int], ...]:
    if not values:
        return ()
    width = max(1, -(-(max(values) - min(values) + 1) // num_bars))
    counts = dict.fromkeys(range(min(values), max(values) + 1, width), 0)
    for value in values:
        counts[min(values) + (value - min(values)) // width * width] += 1
    return tuple(counts.items())


def make_schema(role: str) -> dict[str, Any]:
    """`rlf schema`: a second of work, for it reads the source of every kind."""
    from rlf.cli.arguments import load_part

    schema: dict[str, Any] = load_part("apps.schema.schemas:schema_of", "a spec's fields")(role)
    return schema


def _load_tasks() -> dict[str, Callable[..., Any]]:
    """The tasks here, and those of each app that has a page."""
    own = (check_text, plan_text, show_prompt, show_data, make_schema)
    pages = [importlib.import_module(f"rlf.apps.{name}.page") for name in sorted(apps_with_page())]
    return {task.__name__: task for tasks in (own, *(page.TASKS for page in pages)) for task in tasks}


TASKS = _load_tasks()
"""By name."""
