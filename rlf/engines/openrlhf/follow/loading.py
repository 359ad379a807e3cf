"""What a person who waits sees between Ray's start and the first step: which model loads, and that it still does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator

_ACTOR = re.compile(r"^\((\w+) pid=\d+\) ")
# OpenRLHF's progress bar of the whole training, which begins when every model is up.
_LOADED = "Episode [1/1]:"
_LOADS = {
    "RolloutRayActor": "vLLM loads the model",
    "PolicyModelActor": "the policy is loaded",
    "ReferenceModelActor": "the reference is loaded",
    "CriticModelActor": "the critic is loaded",
}
"""By the actor whose first line says so, in the words for a person who waits."""
_SILENT_S = 20.0
"""Time after which it is reported again that the job loads."""
_MAX_CHARS = 100


class Loading:
    """Follows the output of a job until its models are up."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._told = clock()
        self._seen: set[str] = set()
        self._last = ""
        self.is_over = False

    def read(self, lines: Iterable[str]) -> Iterator[str]:
        """What there is to say after new lines of the output, or after none."""
        for line in lines:
            if _LOADED in line:
                self.is_over = True
                return
            if line.strip():
                self._last = line.strip()
            match = _ACTOR.match(line)
            if match and match[1] in _LOADS and match[1] not in self._seen:
                self._seen.add(match[1])
                yield self._say(_LOADS[match[1]])
        if self._clock() - self._told >= _SILENT_S:
            yield self._say(f"still loading; the job's last line: {self._last[:_MAX_CHARS] or 'none yet'}")

    def _say(self, words: str) -> str:
        self._told = self._clock()
        return f"{words} ({self._told - self._began:.0f} s)"
