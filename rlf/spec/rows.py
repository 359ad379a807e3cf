"""What a spec asks of its rows: columns that terms, worlds and agents read, and no more images than fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlf.core import Fault, RlfError, nearest
from rlf.data import recall
from rlf.spec.budget import fits_no_budget, longest_prompt, most_images
from rlf.spec.load import LoadedSpec, reads
from rlf.types import Task


def find_row_faults(loaded: LoadedSpec, name: str, tasks: Sequence[Task]) -> Iterator[Fault]:
    """The faults of the rows of `data.train` or `data.eval`."""
    for check in (_check_columns, _world_columns, _agent_columns, _check_images, _check_lengths):
        yield from check(loaded, name, tasks)


@reads("rollout.max_images")
def _check_images(loaded: LoadedSpec, name: str, tasks: Sequence[Task]) -> Iterator[Fault]:
    """Rows with more images than a trajectory may hold."""
    allowed = loaded.spec.rollout.max_images
    most = recall(most_images, tasks) if allowed else 0
    if most > allowed:
        task_id = next(task.id for task in tasks if len(task.images) == most)
        message = f"got {allowed}; row {task_id!r} of data.{name} has {most} images. Write at least {most}."
        yield loaded.fault(("rollout", "max_images"), message)


@reads("rollout.max_total_tokens")
def _check_lengths(loaded: LoadedSpec, name: str, tasks: Sequence[Task]) -> Iterator[Fault]:
    """Prompts that no trajectory holds, and whose tokens would fill the memory in each of them."""
    budget, (num_characters, task_id) = loaded.spec.rollout.max_total_tokens, recall(longest_prompt, tasks)
    if fits_no_budget(num_characters, budget):
        message = (
            f"the prompt of row {task_id!r} has {num_characters:,} characters; rollout.max_total_tokens is {budget}"
        )
        fix = "Leave the row out; a quote that is never closed makes one row of many."
        yield loaded.fault(("data", name, "path"), f"{message}. {fix}")


@reads("env")
def _world_columns(loaded: LoadedSpec, name: str, tasks: Sequence[Task]) -> Iterator[Fault]:
    """Rows that name no world, and columns that a world needs at its reset and the first of its rows lacks."""
    env = loaded.spec.env
    wrong, known = list[str](), dict[str | None, list[str]]()
    if env is not None and None in env.parts and tasks:
        known[None] = recall(_first_columns, tasks)
    elif env is not None:
        for number, task in enumerate(tasks, 1):
            try:
                known.setdefault(env.part_of(task.columns)[0], list(task.columns))
            except ValueError as error:
                wrong.append(f"row {number} ({task.id!r}): {error}")
    if wrong:
        more = f", and so have {len(wrong) - 1} more rows" * (len(wrong) > 1)
        yield loaded.fault(
            ("data", name, "path"), f"{wrong[0]}{more}. Write one of these, or declare it in env.worlds."
        )
    for world, columns in known.items():
        whose = "the world's" if world is None else f"world {world!r}: its"
        try:
            missing = [] if env is None else env.parts[world].missing_columns(columns)
        except RlfError:  # reported where the world itself is looked at
            return
        for column in missing:
            message = f"{whose} reset takes {column!r}, and data.{name} has no such column{nearest(column, columns)}"
            fix = f"(columns: {', '.join(columns)}). Give it a default, or add the column."
            yield loaded.fault(("env",), f"{message} {fix}")


@reads("rewards[]")
def _check_columns(loaded: LoadedSpec, name: str, tasks: Sequence[Task]) -> Iterator[Fault]:
    """Columns that terms read and a dataset lacks; of a judge's prompt any of its rows."""
    for position, term in enumerate(loaded.spec.rewards):
        of_all = term.reads_all_rows
        try:
            columns = term.columns
        except RlfError:  # of a function that cannot be had, which is reported where it is looked at
            continue
        for column, key in columns.items():
            lacking = recall(_row_without, tasks, column, of_all)
            if lacking is not None:
                number, known = lacking
                place = "" if number == 1 else f" in row {number}"
                message = f"data.{name} has no column {column!r}{place}{nearest(column, known)}"
                yield loaded.fault(
                    ("rewards", position, *key), f"{message} (columns: {', '.join(known)}). Name one of these."
                )


@reads("rollout.agent", "data.train", "data.eval")
def _agent_columns(loaded: LoadedSpec, name: str, tasks: Sequence[Task]) -> Iterator[Fault]:
    """Columns that an agent's command is filled with and a row lacks, or that hold the gold answer."""
    agent, gold = loaded.spec.rollout.agent, loaded.spec.data.gold_columns
    named = [(key, place.removeprefix("row.")) for key, place in agent.places if place[:4] == "row."] if agent else []
    for key, column in named:
        if column in gold and name == "train":  # once
            message = f"{column!r} holds the gold answer, which agents are not given. Name another column."
            yield loaded.fault(("rollout", "agent", *key), message)
        elif column not in gold and (lacking := recall(_row_without, tasks, column, True)) is not None:
            number, known = lacking
            where = f"row {number} of data.{name} has no column {column!r}{nearest(column, known)}"
            message = f"{where} (columns: {', '.join(known)}). Name one of these."
            yield loaded.fault(("rollout", "agent", *key), message)


def _first_columns(tasks: Sequence[Task]) -> list[str]:
    return list(tasks[0].columns) if tasks else []


def _row_without(tasks: Sequence[Task], column: str, of_all: bool) -> tuple[int, list[str]] | None:
    """Number and columns of the first row, or of the first of all, that lacks a column."""
    rows = tasks if of_all else tasks[:1]
    found = ((number, list(task.columns)) for number, task in enumerate(rows, 1) if column not in task.columns)
    return next(found, None)
