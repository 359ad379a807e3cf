"""The clock of a process and of the Python processes that it starts, moved by a year.

Copied as `sitecustomize.py` into a folder of `PYTHONPATH`: it runs before all other code, so it imports nothing of rlf.
Monotonic clocks stay as they are: deadlines go by them.
"""

import ctypes
import datetime
import gc
import time
from typing import Any

MOVED_S = 400 * 86_400 + 12_345


def move_clock() -> None:
    """Moves what `time` and `datetime` say."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + MOVED_S
    time.time_ns = lambda: now_ns() + MOVED_S * 10**9
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name)))
    form, spell = time.strftime, time.asctime
    time.strftime = lambda text, when=None: form(text, time.localtime() if when is None else when)
    time.asctime = lambda when=None: spell(time.localtime() if when is None else when)
    moved = datetime.timedelta(seconds=MOVED_S)
    known, known_utc = datetime.datetime.now, datetime.datetime.utcnow
    # The class stays the same one, which pydantic and sqlalchemy know; `date.today` asks `time.time`.
    methods: dict[str, Any] = gc.get_referents(datetime.datetime.__dict__)[0]
    methods["now"] = classmethod(lambda cls, tz=None: known(tz) + moved)
    methods["utcnow"] = classmethod(lambda cls: known_utc() + moved)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))


def _of_now(function: Any) -> Any:
    return lambda seconds=None: function(time.time() if seconds is None else seconds)


if __name__ == "sitecustomize":
    move_clock()
