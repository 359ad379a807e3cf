"""The rows of the job's datasets: one task each, whole, so that no prompt is tokenised twice.

OpenRLHF hands `input` and `label` to the agent as they are and tokenises neither. `input` is therefore the row's
own name, and the label the task as JSON: the agent renders the prompt's tokens with rlf's chat format, once.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlf.apps.openrlhf.job import Job
from rlf.core import RlfError
from rlf.core.images import read_image_file
from rlf.spec.models import EvalSpec, RunSpec
from rlf.training.counting import draw_tasks
from rlf.types.task import Message, Task

# The images of the job's rows: files by their content, so that one that many rows show is there once.

_FOLDER = "images"


def keep_images(tasks: Sequence[Task], job: Job, *, shared: bool) -> list[Task]:
    """Copies the images of tasks to where every node finds them; returns the tasks with the copies' names.

    Args:
        shared: whether the nodes see `job.output`, where images then lie under their whole names. Else they lie in
            the job folder, which travels to the nodes, and are named from there.

    Raises:
        RlfError: an image cannot be read.
    """
    names = {reference: "" for task in tasks for reference in task.images}
    top = job.output if shared else job.folder
    if names:
        (top / _FOLDER).mkdir(parents=True, exist_ok=True)
    for reference in names:
        path = _kept(reference, top / _FOLDER)
        names[reference] = str(path.relative_to(job.folder) if path.is_relative_to(job.folder) else path)
    return [_rename_images(task, names) for task in tasks]


def found_images(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The paths of images by their names in a row, where the job folder, or its copy on this node, is `folder`."""
    return tuple(str(folder / name) for name in names)


def _rename_images(task: Task, names: Mapping[str, str]) -> Task:
    """A task with other names for its images."""
    if not task.images:
        return task
    messages = [Message(m.role, m.content, tuple(names[image] for image in m.images)) for m in task.messages]
    return replace(task, messages=tuple(messages))


def _kept(reference: str, folder: Path) -> Path:
    image = read_image_file(reference)
    suffix = mimetypes.guess_extension(image.mime_type) or ""
    path = folder / f"{hashlib.sha256(image.data).hexdigest()}{suffix}"
    if not path.exists():
        torn = path.with_suffix(".tmp")
        torn.write_bytes(image.data)
        torn.rename(path)
    return path


MAX_TRIED = 64
"""Rows that a check looks at: a column's type is the same in all rows of a table."""


class Purpose(StrEnum):
    """The purpose of a row's trajectories; also the row's `datasource`, by which OpenRLHF reports evaluations."""

    TRAIN = "train"
    """Trained on; sampled as `rollout` says."""
    SAMPLED = "sampled"
    """Evaluation, sampled at `eval.temperature`."""
    GREEDY = "greedy"
    """Evaluation, greedily."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One prompt of OpenRLHF."""

    purpose: Purpose
    index: int
    """Training: the row's number, from 0. Sampled evaluation: which of `eval.num_samples` this is. Greedy: 0."""
    task: Task

    @property
    def name(self) -> str:
        """`train/12/nq-7`: unique in its file."""
        return f"{self.purpose}/{self.index}/{self.task.id}"


def training_rows(tasks: Sequence[Task], spec: RunSpec) -> Iterator[JobRow]:
    """The rows that a run draws, steps x prompts_per_step, pass by pass in the order of the local engine.

    OpenRLHF shuffles them all once more, so that only the first pass of a run of several is a pass.
    """
    num_rows = spec.train.steps * spec.train.prompts_per_step
    return (JobRow(Purpose.TRAIN, index, task) for index, task in draw_tasks(tasks, spec.seed, 0, num_rows))


def evaluation_rows(tasks: Sequence[Task], evaluation: EvalSpec) -> Iterator[JobRow]:
    """The rows of one evaluation: each task for every sample, then each greedily if that is wanted."""
    for task in tasks:
        for sample in range(evaluation.num_samples):
            yield JobRow(Purpose.SAMPLED, sample, task)
    if evaluation.greedy:
        yield from (JobRow(Purpose.GREEDY, 0, task) for task in tasks)


def write_row(row: JobRow) -> str:
    """The row as one line of JSONL, without the line's end.

    Raises:
        RlfError: a column holds what JSON does not know, as parquet's dates do: the agent would read something else.
    """
    task = row.task
    label = {
        "purpose": row.purpose,
        "index": row.index,
        "id": task.id,
        "messages": [_message_json(message) for message in task.messages],
        "answer": task.answer,
        "kind": task.kind,
        "columns": dict(task.columns),
        "tools": task.tools,
        "cluster": task.cluster,
    }
    if said := _columns_of_prompt(task):
        label["columns"] |= dict.fromkeys(said)
        label["said"] = said
    try:
        text = json.dumps(label)
    except TypeError as error:
        named = [name for name, value in task.columns.items() if not _is_json(value)]
        raise RlfError(
            f"row {task.id!r}: {error}, as the columns {', '.join(named)} need; rows travel to OpenRLHF's agents as "
            "JSON. Write such columns as text, or leave them out."
        ) from error
    return json.dumps({"input": row.name, "label": text, "datasource": row.purpose})


@lru_cache(maxsize=256)
def read_label(label: str, folder: Path) -> JobRow:
    """The row whose `label` this is; read once for the samples of a group.

    Args:
        folder: the job folder, or its copy on this node.
    """
    values: dict[str, Any] = json.loads(label)
    tools, columns = values["tools"], values["columns"]
    for name, is_text in values.get("said", {}).items():
        columns[name] = values["messages"][-1]["content"] if is_text else values["messages"]
    task = Task(
        id=values["id"],
        messages=tuple(
            Message(message["role"], message["content"], found_images(folder, message.get("images", ())))
            for message in values["messages"]
        ),
        answer=values["answer"],
        kind=values["kind"],
        columns=columns,
        tools=None if tools is None else tuple(tools),
        cluster=values.get("cluster"),
    )
    return JobRow(Purpose(values["purpose"]), values["index"], task)


def find_row_fault(tasks: Sequence[Task]) -> str | None:
    """Why rows cannot be sent to the agent, from a few rows spread over the dataset; None if they can."""
    for task in tasks[:: max(1, len(tasks) // MAX_TRIED)]:
        try:
            write_row(JobRow(Purpose.TRAIN, 0, task))
        except RlfError as error:
            return str(error)
    return None


def _columns_of_prompt(task: Task) -> dict[str, bool]:
    """Columns that hold what the messages say, so that it need not be written twice: the question's text, or all."""
    if not task.messages or task.images:
        return {}
    text, messages = task.messages[-1].content, [_message_json(message) for message in task.messages]
    found = ((name, value == text) for name, value in task.columns.items() if value in (text, messages))
    return dict(found)


def _message_json(message: Message) -> dict[str, Any]:
    shown = {"images": message.images} if message.images else {}
    return {"role": message.role, "content": message.content, **shown}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True
