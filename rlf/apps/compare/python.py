"""`rlf.compare`: how runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlf.apps.compare.comparison import Comparison
from rlf.apps.compare.views import compare_runs
from rlf.core.errors import RlfError
from rlf.python.runs import Run
from rlf.python.specs import DEFAULT_RUNS, AnyPath
from rlf.runs.place import open_reader


def compare(
    *runs: Run | str | Sequence[Run | str],
    mode: str | None = None,
    threshold: float | None = None,
    ends: bool = False,
    runs_folder: AnyPath | None = None,
) -> Comparison:
    """Compares runs: what differs, by how much, and whether that exceeds chance; a sweep by its settings.

    Args:
        runs: the first is the baseline; a list, or `"a,b,c"`, joins the seeds of one arm.
        mode: evaluations that count, `sampled` or `greedy`.
        threshold: held-out success whose cost in steps, tokens and time is reported.
        ends: compares each run's last evaluation, also after different numbers of steps.
        runs_folder: by default the runs' own.
    """
    arms = [[arm] if isinstance(arm, Run | str) else list(arm) for arm in runs]
    folders = {run.runs_folder for arm in arms for run in arm if isinstance(run, Run)}
    if runs_folder is None and len(folders) > 1:
        raise RlfError(f"the runs are in several folders: {', '.join(map(str, folders))}. Compare runs of one folder.")
    folder = Path(runs_folder or next(iter(folders), DEFAULT_RUNS))
    if not all(arms):
        raise RlfError("compare: got an empty list; an arm has one run for each seed. Write e.g. [[a0, a1], [b0, b1]].")
    names = [",".join(run.id if isinstance(run, Run) else run for run in arm) for arm in arms]
    with open_reader(folder) as reader:
        return compare_runs(reader, names, mode, threshold, at_ends=ends)
