"""Datasets as tasks: JSONL, JSON, CSV and parquet files, builtin sets and Hugging Face ids.

Reading and column mapping live here; which rows a run uses, and when, does not. Invariant: the same file gives the
same tasks with the same ids, in the file's order.

Of rows that were found sound before a check knows the number; what reads them is loaded when one is looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.core.files import MIXTURE_SUFFIX
from rlf.core.identity import hash_json, read_note, remember, stamp_file
from rlf.core.registry import lazily
from rlf.types import Task

if TYPE_CHECKING:
    from rlf.data.tasks import dataset_hash, load_tasks

__all__ = ["dataset_hash", "load_tasks", "open_tasks", "recall"]

T = TypeVar("T")

MIN_BYTES = 20_000
"""Rows of a smaller file are read again faster than what was found in them is looked up."""


class OpenedTasks(Sequence[Task]):
    """The tasks of an unchanged file, of which the number is known."""

    def __init__(self, key: str, num: int, load: Callable[[], Sequence[Task]]) -> None:
        self.key = key
        """Equal for equal tasks."""
        self._num = num
        self._load = load

    @cached_property
    def _loaded_tasks(self) -> Sequence[Task]:
        return self._load()

    def __len__(self) -> int:
        return self._num

    def __iter__(self) -> Iterator[Task]:
        return iter(self._loaded_tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, int):
            return self._loaded_tasks[index]
        places = range(self._num)[index]
        key = hash_json([self.key, places.start, places.stop, places.step])
        return OpenedTasks(key, len(places), lambda: self._loaded_tasks[index])


def open_tasks(source: Mapping[str, Any], declared: Sequence[str] | None) -> Sequence[Task]:
    """The tasks as `load_tasks` reads them, or later where the same was read before from files that are unchanged.

    Raises SpecError as `load_tasks` does.

    Args:
        source: the keys of a dataset.
    """

    def load() -> list[Task]:
        from rlf.data.tasks import load_tasks

        return load_tasks(**source, declared=declared)

    stamps = _stamp_files(source)
    if stamps is None:
        return load()
    key = hash_json([dict(source), declared, stamps])
    if (num := read_note(key)) is not None:
        return OpenedTasks(key, num[0], load)
    tasks = load()
    return OpenedTasks(key, remember(key, lambda: len(tasks)), lambda: tasks)


def recall(find: Callable[..., T], *arguments: Any) -> T:
    """What a function finds in tasks, of files that are unchanged as it found it before: a JSON value.

    Args:
        arguments: of the function: datasets, and JSON values.
    """
    if not any(isinstance(argument, OpenedTasks) for argument in arguments):
        return find(*arguments)
    key = [find.__module__, find.__qualname__, *map(_key_of, arguments)]
    return remember(key, lambda: find(*arguments))


def _key_of(argument: Any) -> Any:
    if isinstance(argument, OpenedTasks):
        return argument.key
    if not isinstance(argument, list) or not argument or not isinstance(argument[0], Task):
        return argument
    from rlf.data.tasks import dataset_hash

    return dataset_hash(argument)


def _stamp_files(source: Mapping[str, Any]) -> list[Any] | None:
    """Stamps of all files of a dataset; None where that is not known, or not worth it."""
    name = source["path"]
    path = builtin_path(name.removeprefix(BUILTIN)) if name.startswith(BUILTIN) else Path(name)
    # The reader of parquet takes longer to load than small files. A mixture is small, and what it lists is not.
    least = 0 if path.suffix in (".parquet", ".yaml") else MIN_BYTES
    if source["images"] is not None or not path.is_absolute() or stamp_file(path, least) is None:
        return None
    named = [Path(value) for key in ("template", "system", "examples") if isinstance(value := source[key], str)]
    mixed = list(map(Path, mixture_files(name)))
    stamps = [stamp_file(file) for file in (path, *mixed, *(file for file in named if os.path.isfile(file)))]  # noqa: PTH113
    return None if None in stamps else stamps


def mixture_files(path: str) -> list[str]:
    """The paths of the datasets of a mixture; of another dataset, or where it cannot be read, none."""
    file = Path(path)
    if not path.endswith(MIXTURE_SUFFIX) or not file.is_file():
        return []
    from rlf.data.mixture import read_mixture

    return [one.path for one in read_mixture(file, path)]


__getattr__ = lazily(__name__, {"dataset_hash": "tasks", "load_tasks": "tasks"})
