"""An event loop for blocking calls, also where one is running already, as in a notebook."""

from __future__ import annotations

from asyncio import events, tasks
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_loop() -> Iterator[None]:
    """Lets the block call `asyncio.run`: the thread's running loop, if there is one, stands still meanwhile.

    The block stays in its thread, so that Ctrl-C ends it as it ends a command.
    """
    outer = events._get_running_loop()
    if outer is None:
        yield
        return
    swap = getattr(tasks, "_swap_current_task", lambda loop, task: None)  # from Python 3.12 on
    task = swap(outer, None)
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(outer)
        swap(outer, task)
