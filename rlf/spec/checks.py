"""Checks between the keys of a spec: each declares the keys it reads, sees no others, and runs where these are sound.

So what a fault hides is known from the declarations, and an error in a check is a traceback on every spec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec

from rlf.core import Fault
from rlf.spec.load import LoadedSpec
from rlf.spec.reading.nodes import KeyPath

Rest = ParamSpec("Rest")
Finder = Callable[Concatenate[LoadedSpec, Rest], Iterable[Fault]]


@dataclass(frozen=True, slots=True)
class Check(Generic[Rest]):
    """A function from a loaded spec to faults, with the keys that it reads."""

    find: Finder[Rest]
    keys: tuple[KeyPath, ...]

    def __call__(self, loaded: LoadedSpec, *args: Rest.args, **kwargs: Rest.kwargs) -> Iterator[Fault]:
        """The faults; none where a key that the check reads has a fault of its own."""
        if loaded.is_sound(*self.keys):
            yield from self.find(loaded.only(self.keys), *args, **kwargs)


def reads(*keys: str) -> Callable[[Finder[Rest]], Check[Rest]]:
    """Declares the keys of a check, e.g. `@reads("train.steps", "tools", "rewards[]")`.

    `tools` and `rewards` are the whole list; `tools[]` and `rewards[]` are its items without those that have faults.
    """
    paths = tuple(tuple(re.split(r"\.|(?=\[])", key)) for key in keys)
    return lambda find: Check(find, paths)
