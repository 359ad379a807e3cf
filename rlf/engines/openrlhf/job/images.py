"""The pictures of the job's rows: files by their content, so that one that many rows show is there once."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rlf.core.image_file import read_image_file
from rlf.engines.openrlhf.job.folder import Job
from rlf.types.task import Message, Task


def keep_images(tasks: Sequence[Task], job: Job) -> list[Task]:
    """Copies the pictures of tasks to the job; the tasks with the copies' names.

    A name is relative where the job folder itself travels to the nodes, whole where they see `job.output`.

    Raises:
        RlfError: a picture cannot be read.
    """
    names = {reference: "" for task in tasks for reference in task.images}
    if names:
        job.images.mkdir(parents=True, exist_ok=True)
    for reference in names:
        names[reference] = _kept(reference, job)
    return [renamed(task, names) for task in tasks]


def renamed(task: Task, names: Mapping[str, str]) -> Task:
    """A task with other names for its pictures."""
    if not task.images:
        return task
    messages = [Message(m.role, m.content, tuple(names[image] for image in m.images)) for m in task.messages]
    return replace(task, messages=tuple(messages))


def _kept(reference: str, job: Job) -> str:
    image = read_image_file(reference)
    suffix = mimetypes.guess_extension(image.mime_type) or ""
    path = job.images / f"{hashlib.sha256(image.data).hexdigest()}{suffix}"
    if not path.exists():
        path.write_bytes(image.data)
    return str(path.relative_to(job.folder)) if path.is_relative_to(job.folder) else str(path)


def found_images(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The paths of pictures by their names in a row, where the job folder, or its copy on this node, is `folder`."""
    return tuple(str(folder / name) for name in names)
