"""What `rlf verify` holds a model's card against: the lineage of its run, and the hashes of all files of the folder."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from rlf import __version__
from rlf.apps.share.archive import write_archive
from rlf.core.identity import hash_path
from rlf.lineage.reader import Reader
from rlf.lineage.records import EVALUATION, Run
from rlf.lineage.upkeep import Keep
from rlf.reports.card import CONTROL
from rlf.runs.exports import PROOF, PROOF_LINEAGE, find_licence
from rlf.types import RunStatus

logger = logging.getLogger(__name__)


def write_proof(reader: Reader, run: Run, step: int, folder: Path) -> None:
    """Adds the proof of a model's card to its folder. Of the training only rows stay; evaluations are whole.

    Args:
        step: updates that the model has seen.
    """
    if run.status is RunStatus.RUNNING:
        logger.warning(
            "run %s is still running: its model has no proof. Export it again when it has ended.", run.record.id
        )
        return
    write_archive(reader.store, _find_spoken_of(reader, run, step), folder / PROOF_LINEAGE, Keep())
    files = {
        path.relative_to(folder).as_posix(): hash_path(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    head = reader.link(run.record.id)
    proof = {
        "rlf": __version__,
        "head": None if head is None else head.sha256,
        "licence": find_licence(str(run.record.plan["spec"]["model"]["path"])),
        "files": files,
    }
    (folder / PROOF).write_text(json.dumps(proof, indent=1) + "\n", encoding="utf-8")


def _find_spoken_of(reader: Reader, run: Run, step: int) -> list[str]:
    """The runs that a card may speak of: its own, evaluations of its model, and controls."""
    run_id, tags = run.record.id, reader.tags()
    stopped = [each.record for each in reader.list_runs() if each.status is not RunStatus.RUNNING]
    of_model = [
        record.id
        for record in stopped
        if record.engine == EVALUATION and (record.parent_id, record.parent_step) == (run_id, step)
    ]
    controls = [record.id for record in stopped if CONTROL in tags.get(record.id, ())]
    return list(dict.fromkeys([run_id, *of_model, *controls]))
