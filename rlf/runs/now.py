"""The present work of a run, in a file of its folder that its process writes and others read."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from rlf.core.clocks import TimedStage, open_stages, open_waits

FILE = "now.json"
_EVERY_S = 0.5
_LONG_S = 2.0
"""A wait of which it is reported how long it has lasted."""


@dataclass(frozen=True, slots=True)
class PendingCalls:
    """Pending calls of one tool, or pending requests to one model."""

    what: str
    """E.g. `tool search`."""
    number: int
    since: float
    """Unix time at which the longest of them began."""


@dataclass(frozen=True, slots=True)
class Now:
    """The present work of a run."""

    stages: tuple[TimedStage, ...]
    waits: tuple[PendingCalls, ...]

    def words(self, at: float) -> str:
        """The same as a sentence. Args: at: Unix time of the reader."""
        doing = [
            f"{one.what}: {one.num_done} of {one.num_planned}" if one.num_planned else one.what for one in self.stages
        ]
        waits = [
            f"{one.what} ({one.number}{f', for {at - one.since:.0f} s' if at - one.since >= _LONG_S else ''})"
            for one in self.waits
        ]
        waiting = f"waits for {', '.join(waits)}" if waits else ""
        return " · ".join(filter(None, [*doing, waiting]))


def look_now() -> Now:
    """The present work of this process."""
    waits = defaultdict[str, list[float]](list)
    for since, what in open_waits():
        waits[what.partition(" (")[0]].append(since)
    return Now(
        tuple(map(replace, open_stages())),  # copies, since a stage counts on
        tuple(PendingCalls(what, len(times), min(times)) for what, times in sorted(waits.items())),
    )


class NowWriter:
    """Writes what this process does while the block runs, on a thread of its own, and removes the file at the end."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_until_ended, name="now", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _write_until_ended(self) -> None:
        written, draft = None, self._file.with_suffix(".draft")
        while not self._ended.wait(_EVERY_S):
            now = look_now()
            if now == written:
                continue
            with suppress(OSError):  # a full disk ends runs elsewhere
                self._file.parent.mkdir(parents=True, exist_ok=True)
                draft.write_text(json.dumps(asdict(now)), encoding="utf-8")
                draft.replace(self._file)
                written = now
