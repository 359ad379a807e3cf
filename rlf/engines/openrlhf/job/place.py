"""Where a job of one machine runs: with which Python, which variables, and how much Ray may count on.

Kept in the job folder, so that a resume continues at the same place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from rlf.core.kinds import StrictModel
from rlf.engines.openrlhf.job.folder import Job

_FILE = "place.json"


class Place(StrictModel):
    """The Python, variables and resources of one machine."""

    python: str = sys.executable
    """The interpreter that has OpenRLHF and what it needs."""
    paths: tuple[str, ...] = ()
    """Folders that go before everything else on its path."""
    variables: Mapping[str, str] = {}
    """Set for every process of the job."""
    num_gpus: int | None = None
    """GPUs that Ray counts on; None: those that it finds."""
    num_cpus: int | None = None
    """CPU cores that Ray counts on; None: those that it finds."""
    object_store_bytes: int | None = None
    """Memory for what actors hand each other; None: Ray's default, 30 % of the machine's."""
    name: str = ""
    """What it is called in the lineage; empty: by its number of GPUs."""

    def environment(self, job_variables: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the job's processes."""
        inherited = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PYTHONHOME")}
        folders = [*self.paths, *filter(None, [os.environ.get("PYTHONPATH")])]
        path = {"PYTHONPATH": os.pathsep.join(folders)} if folders else {}
        return inherited | {"RAY_DEDUP_LOGS": "0"} | dict(job_variables) | dict(self.variables) | path


def read_place(job: Job) -> Place | None:
    """Where a job was started; None before its first launch."""
    file = job.folder / _FILE
    return Place.model_validate_json(file.read_text()) if file.is_file() else None


def write_place(job: Job, place: Place) -> None:
    """Saves where a job is started."""
    (job.folder / _FILE).write_text(place.model_dump_json(indent=1))
