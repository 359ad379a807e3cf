"""`rlf.sweep`: a run for each combination of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from rlf.apps.sweep.sweep import Watcher, run_sweep
from rlf.core import process as stops
from rlf.core.errors import RlfError
from rlf.python.runs import Run, load_run, make_view
from rlf.python.specs import DEFAULT_RUNS, AnyPath, Overrides, Spec, as_command, to_command, to_texts
from rlf.types import RunEvent, RunStatus


def sweep(
    spec: Spec,
    grid: Mapping[str, Sequence[Any]],
    overrides: Overrides = (),
    *,
    at_once: int = 1,
    on_event: Callable[[RunEvent], None] | None = None,
    runs_folder: AnyPath = DEFAULT_RUNS,
) -> list[Run]:
    """Trains one run for each combination of values: `rlf run SPEC -m KEY=A,B`.

    Args:
        at_once: how many run side by side, each in a process of its own, without events.
        grid: the values of each key, e.g. `{"seed": [0, 1, 2]}`; the last key varies fastest.

    Returns: the runs that were begun, in order, those that failed included; `rlf.compare` takes them.

    Raises:
        SpecError: a member has faults; nothing was started.
        KeyboardInterrupt: it was interrupted; everything is kept, and `rlf.resume` of the sweep's id continues it.
    """
    folder = Path(runs_folder)
    files, texts = to_command(spec, overrides, folder)
    for key, values in grid.items():
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            raise RlfError(f"{key}: got {values!r}; expected the list of its values. Write e.g. [{values!r}].")
    axes = [[to_texts({key: value}, folder)[0] for value in values] for key, values in grid.items()]
    members = [tuple(member) for member in product(*axes)]
    watcher = Watcher(make_view(on_event), lambda member: None, lambda member, outcome: None)
    axes_text = [f"{axis[0].partition('=')[0]}={','.join(text.partition('=')[2] for text in axis)}" for axis in axes]
    command = ["rlf", "run", *map(str, files), *texts, "-m", *axes_text, "--runs", str(folder)]
    with as_command(), stops.heeded():
        done = run_sweep(files, texts, members, runs_folder=folder, watcher=watcher, command=command, at_once=at_once)
    if done.status is RunStatus.INTERRUPTED:
        raise KeyboardInterrupt(f"sweep {done.run_id} stopped; continue it with rlf.resume({done.run_id!r})")
    return [load_run(member.run_id, runs_folder=folder) for member in done.members if member.run_id is not None]
