"""The images of the job's rows: files by their content, so that one that many rows show is there once."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rlf.core.files import read_image_file
from rlf.engines.openrlhf.job.folder import Job
from rlf.types.task import Message, Task

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
