"""A run's model as a folder of its own, in Hugging Face's form, whichever engine trained it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from rlf.api.lineage import open_reader
from rlf.api.runs.models import choose_model
from rlf.core.hashing import hash_path
from rlf.core.publish import check_free, published
from rlf.lineage.marks import add_export
from rlf.lineage.records import Export

ORIGIN = "rlf_run.json"
"""File beside the weights that says which run they are of."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A model that was written."""

    run_id: str
    step: int
    """Updates that it has seen."""
    folder: Path


def export_model(name: str, target: Path, *, runs_folder: Path, step: str = "newest") -> Exported:
    """Writes a model of a run to `target`: the final one, or that of a checkpoint.

    Adapters are merged into the weights of the model that they are for.

    Args:
        step: the updates that it has seen, `newest`, or `best`: that of the highest held-out success.

    Raises:
        RlfError: there is no such run, it has no model yet, that model does not load, or `target` exists.
    """
    check_free(target)
    with open_reader(runs_folder) as reader:
        run = reader.get_run(name)
        source = choose_model(reader, run, runs_folder, step, "--step")
        with published(target) as temporary:
            source.write(temporary)
            origin = {
                "run": run.record.id,
                "name": run.record.name,
                "step": source.step,
                "plan_hash": run.record.plan_hash,
            }
            (temporary / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n")
            made = Export(str(target.absolute()), "huggingface", source.step, hash_path(temporary), time.time())
            # Before the folder appears: killed here, a row names nothing, and no folder is unknown to `whence`.
            add_export(reader.store, run.record.id, made)
    return Exported(run.record.id, source.step, target)
