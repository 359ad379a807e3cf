"""Datasets as tasks: JSONL, JSON, CSV and parquet files, builtin sets and Hugging Face ids.

Reading and column mapping live here; which rows a run uses, and when, does not. Invariant: the same file gives the
same tasks with the same ids, in the file's order.
"""

from typing import TYPE_CHECKING

from rlf.core.registry import lazily
from rlf.data.opened import open_tasks, recall

if TYPE_CHECKING:
    from rlf.data.tasks import dataset_hash, load_tasks

__all__ = ["dataset_hash", "load_tasks", "open_tasks", "recall"]

__getattr__ = lazily(__name__, {"dataset_hash": "tasks", "load_tasks": "tasks"})
