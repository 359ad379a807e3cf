"""The trajectories of an evaluation so far, line by line in its folder: a killed one continues from there.

A line is written whole as soon as a trajectory is scored; a line that a kill has cut off is not read. The lineage gets
all of a mode at once when it is over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlf.core.redact import Redactor
from rlf.rollout.rollout import Rollout
from rlf.types import Scored, written

_TASK = {"trajectory": {"task"}}
"""What the questions hold already."""


@dataclass(frozen=True, slots=True)
class Played:
    """A trajectory that was played."""

    scored: Scored
    usage: Mapping[str, float]
    """What the model's server counted; empty for a model of this machine."""


@dataclass(frozen=True, slots=True)
class Spool:
    """The file."""

    path: Path
    redactor: Redactor

    def add(self, played: Sequence[Played]) -> None:
        """Appends trajectories; together, so that a kill leaves all of them or finds them unfinished."""
        lines = [
            self.redactor.json({"scored": written.write(item.scored, without=_TASK), "usage": dict(item.usage)}) + "\n"
            for item in played
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join([*lines, json.dumps({"end": len(lines)}), "\n"]))

    def read(self, rollouts: Sequence[Rollout]) -> dict[str, Played]:
        """Which of these rollouts were played, by their ids."""
        by_id = {rollout.id: rollout for rollout in rollouts}
        found: dict[str, Played] = {}
        for values in self._read_groups():
            rollout = by_id.get(values["scored"]["trajectory"]["id"])
            if rollout is not None:
                values["scored"]["trajectory"]["task"] = {"id": rollout.task.id, "messages": []}
                scored = written.read(Scored, values["scored"])
                scored = replace(scored, trajectory=replace(scored.trajectory, task=rollout.task))
                found[rollout.id] = Played(scored, values["usage"])
        return found

    def remove(self) -> None:
        """Deletes the file, and its folder where nothing else is in it."""
        self.path.unlink(missing_ok=True)
        if self.path.parent.is_dir() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()

    def _read_groups(self) -> Iterator[dict[str, Any]]:
        """The trajectories of every write that is whole."""
        if not self.path.is_file():
            return
        group: list[dict[str, Any]] = []
        for line in self.path.read_text(encoding="utf-8").split("\n"):  # a text may hold other ends of lines
            try:
                values = json.loads(line)
            except ValueError:  # cut off by a kill; what follows was written by another process
                group = []
                continue
            if "end" not in values:
                group.append(values)
                continue
            if values["end"] == len(group):
                yield from group
            group = []
