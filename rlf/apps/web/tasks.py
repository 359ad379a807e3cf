"""The tasks of a fork: plain values in, the JSON of commands out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.apps.tools import trials
from rlf.apps.tools.python import ShownTool
from rlf.core.errors import RlfError, SpecError
from rlf.core.redact import Redactor
from rlf.python.specs import Check, check
from rlf.python.tools import Tool
from rlf.runs import tools as load

if TYPE_CHECKING:
    from rlf.apps.doctor.findings import Examination
    from rlf.apps.rewards.scoring import Rescoring, RewardTerm, Trial
    from rlf.apps.worlds.worlds import WorldKind, WorldScene
    from rlf.runs.keys import PlanChange
    from rlf.runs.planning import PlanReport
    from rlf.runs.prompts import ShownPrompt
    from rlf.runs.why import AdvantageReason
    from rlf.spec.models import RunSpec

_MAX_ROWS = 1_000
"""Rows of a dataset that are looked at for lengths and duplicates."""


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """A tool file's tool, or why there is none."""

    file: str
    tool: Tool | None
    fault: str


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
    from rlf.runs.rewards import load_rewards
    from rlf.spec.layers import absolute

    texts = {} if text is None else {absolute(file, Path.cwd()): text}
    try:
        load.load_tools([file], texts) if part == "tool_specs" else load_rewards([file], texts)
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
    from rlf.runs.keys import find_changes, last_run, plan_leaves
    from rlf.runs.planning import report_plan
    from rlf.spec.layers import absolute

    file = Path(path)
    texts = {} if text is None else {absolute(file, Path.cwd()): text}
    report = report_plan([file], list(overrides), gpu=None, runs_folder=Path(runs), texts=texts)
    before = last_run(Path(runs), report.name)
    if before is None:
        return PlannedText(report, None, ())
    now = {value.path: value.value for value in report.values}
    return PlannedText(report, before.record.id, find_changes(plan_leaves(before), now))


def list_tools(files: Sequence[str]) -> list[DeclaredTool]:
    """The tools of each file, or its faults."""
    found = list[DeclaredTool]()
    for file in files:
        try:
            found += [DeclaredTool(file, Tool.of(tool), "") for tool in load.load_tools([Path(file)])]
        except RlfError as error:
            found.append(DeclaredTool(file, None, str(error)))
    return found


def show_tool(file: str, name: str, spec: str | None) -> ShownTool:
    """`rlf tools show`: a tool with its prompt in a spec's format."""
    from rlf.apps.tools.trials import render_tool

    tool = load.tool_named(load.load_tools([Path(file)]), name)
    return ShownTool.of(tool, () if spec is None else (render_tool(name, Path(spec)),))


def call_tool(file: str, name: str | None, arguments: Mapping[str, Any]) -> trials.CalledTool:
    """One call, as the model would make it; without a name, of a file with one tool."""
    tools = load.load_tools([Path(file)])
    if name is None and len(tools) > 1:
        raise RlfError(f"{file}: declares {', '.join(tool.name for tool in tools)}. Name one of them.")
    return asyncio.run(trials.call_tool(tools, name or tools[0].name, arguments))


def list_rewards(files: Sequence[str]) -> list[RewardTerm]:
    """The terms of reward files and specs."""
    from rlf.apps.rewards.scoring import describe_terms
    from rlf.runs.rewards import load_rewards

    return describe_terms(load_rewards([Path(file) for file in files]))


def try_rewards(files: Sequence[str]) -> list[Trial]:
    """`rlf rewards test`."""
    from rlf.apps.rewards.scoring import try_rewards
    from rlf.runs.rewards import load_rewards

    return list(asyncio.run(try_rewards(load_rewards([Path(file) for file in files]))))


def rescore(
    spec: str | None,
    overrides: Sequence[str],
    weights: Mapping[str, float],
    run: str,
    runs: str,
    phase: str,
    step: int | None,
) -> Rescoring:
    """`rlf rewards score`: a step of a run by the terms of a spec, of its own plan without one.

    Args:
        weights: of terms by name, in place of those that they have.
    """
    from rlf.apps.rewards.scoring import rescore, saved_in_run
    from rlf.runs.rewards import rescoring_spec

    saved = saved_in_run(run, Path(runs), phase=phase, step=step)
    found = _recorded_spec(run, Path(runs)) if spec is None else rescoring_spec([Path(spec)], list(overrides))
    names = [term.name for term in found.rewards]
    if unknown := sorted(set(weights) - set(names)):
        raise RlfError(f"weights: no term {unknown[0]!r} (known: {', '.join(names)}).")
    terms = [term.model_copy(update={"weight": weights.get(term.name, term.weight)}) for term in found.rewards]
    return asyncio.run(rescore(found.model_copy(update={"rewards": tuple(terms)}), saved))


def _recorded_spec(run: str, runs_folder: Path) -> RunSpec:
    """The spec that a run was made with."""
    from rlf.runs.place import open_reader
    from rlf.runs.restore import Places, restore_plan, take_environment

    with open_reader(runs_folder) as reader:
        record = reader.get_run(run).record
        places = Places.of(record, reader.store)
    take_environment(record, places)
    return restore_plan(record, places).spec


def show_prompt(spec: str, overrides: Sequence[str]) -> ShownPrompt:
    """`rlf format show`: the first question as the model reads it, token by token, without secrets across tokens."""
    from rlf.runs.prompts import show_prompt

    found = show_prompt([Path(spec)], list(overrides))
    texts = Redactor(os.environ).pieces([token.text for token in found.tokens])
    tokens = (replace(token, text=text) for token, text in zip(found.tokens, texts, strict=True))
    return replace(found, tokens=tuple(tokens))


def show_data(spec: str, overrides: Sequence[str], which: str, begin: int, limit: int) -> DataPage:
    """Rows of a spec's data as tasks."""
    from rlf.runs.plans import check_spec

    inputs = check_spec([Path(spec)], list(overrides)).inputs
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


def explain_advantage(run: str, runs: str, step: int, k: int) -> AdvantageReason:
    """Why a trajectory was trained with its advantage."""
    from rlf.runs.why import explain_advantage

    return explain_advantage(run, Path(runs), step, k)


def list_worlds() -> list[WorldKind]:
    """`rlf env list`: kinds of worlds, and the specs that have one."""
    from rlf.apps.worlds.worlds import list_worlds

    return list_worlds()


def play_world(spec: str, number: int, actions: Sequence[str | dict[str, Any]]) -> WorldScene:
    """`rlf env play`: the world of a spec after some actions."""
    from rlf.apps.worlds.worlds import play_actions

    return play_actions(spec, number, actions)


def make_schema(role: str) -> dict[str, Any]:
    """`rlf schema`: a second of work, for it reads the source of every kind."""
    from rlf.spec.schema import schema_of

    return schema_of(role)


def examine(runs: str) -> Examination:
    """`rlf doctor`."""
    from rlf.apps.doctor.findings import examine

    return examine(Path(runs))


TASKS: dict[str, Callable[..., Any]] = {
    task.__name__: task
    for task in (
        check_text,
        plan_text,
        list_tools,
        show_tool,
        call_tool,
        list_rewards,
        try_rewards,
        rescore,
        show_prompt,
        show_data,
        explain_advantage,
        list_worlds,
        play_world,
        make_schema,
        examine,
    )
}
"""By name."""
