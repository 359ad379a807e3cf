"""Nodes that differ between two runs, spelt out: which package, which fact of the machine, which row of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rlf.lineage.graph import NodeDifference
from rlf.lineage.reader import Reader

_QUESTION_CHARS = 60


def explain_differences(reader: Reader, left: str, right: str, found: Sequence[NodeDifference]) -> list[NodeDifference]:
    """The differences between two runs, with kinds that stand for many things replaced by those that differ."""
    return [item for difference in found for item in _explain_difference(reader, left, right, difference)]


def _explain_difference(reader: Reader, left: str, right: str, found: NodeDifference) -> Iterator[NodeDifference]:
    records = [reader.get_run(run_id).record for run_id in (left, right)]
    match found.kind:
        case "packages":
            yield from _compare_entries("package", *(record.packages for record in records))
        case "host":
            yield from _compare_entries("host", *(record.host for record in records))
        case "rows":
            yield from _compare_rows(reader, left, right, found.name)
        case _:
            yield found


def _compare_entries(kind: str, left: Mapping[str, object], right: Mapping[str, object]) -> Iterator[NodeDifference]:
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            yield NodeDifference(kind, name, *(str(side.get(name, "")) for side in (left, right)))


def _compare_rows(reader: Reader, left: str, right: str, phase: str) -> Iterator[NodeDifference]:
    """Rows of one phase by their task's id, with the beginning of the question."""
    sides = [reader.rows(run_id, phase) for run_id in (left, right)]
    for task_id in sorted(sides[0].keys() | sides[1].keys()):
        names = [side.get(task_id, "") for side in sides]
        if names[0] != names[1]:
            question = reader.question(names[0] or names[1])
            shown = question if len(question) <= _QUESTION_CHARS else f"{question[:_QUESTION_CHARS]}..."
            yield NodeDifference("row", f"{phase} {task_id} {shown!r}", *names)
