"""Put before a tool's source: its clock stands at one moment, and chance gives one end of its range.

It runs in the sandbox with the source, so that it imports nothing of rlf.
"""

import datetime
import random
import time
from functools import partial
from typing import Any


def freeze(at: float, chance: float) -> None:
    """Sets the clock to `at`, in seconds since 1970, and what chance gives to `chance`, from 0 to 1."""

    class Seen(type):
        """Takes dates for its own that were made before."""

        def __instancecheck__(cls, other: Any) -> bool:
            return isinstance(other, cls.__mro__[1])

    class Day(datetime.date, metaclass=Seen):
        """A day whose today stands."""

        @classmethod
        def today(cls) -> Any:
            """The frozen day."""
            return cls.fromtimestamp(at)

    class Moment(datetime.datetime, metaclass=Seen):
        """A moment whose now stands."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            """The frozen moment."""
            return cls.fromtimestamp(at, tz)

        @classmethod
        def utcnow(cls) -> Any:
            """The same, in UTC."""
            return cls.fromtimestamp(at, datetime.UTC).replace(tzinfo=None)

        today = now

    class Chance(random.Random):
        """Always the same end of the range."""

        def random(self) -> float:
            return chance

    for name, own in {"date": Day, "datetime": Moment}.items():
        setattr(datetime, name, own)
    rigged = Chance()
    for name in random.__all__:
        if name[0].islower() and hasattr(rigged, name):
            setattr(random, name, getattr(rigged, name))
    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, lambda: at)
        setattr(time, f"{name}_ns", lambda: int(at * 1e9))
    now, form = time.localtime(at), time.strftime
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, partial(_read_clock, getattr(time, name), at))
    time.strftime = lambda text, when=now: form(text, when)


def _read_clock(read: Any, at: float, seconds: float | None = None) -> Any:
    return read(at if seconds is None else seconds)
