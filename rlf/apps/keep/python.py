"""`rlf.export`: the model of a run as a folder."""

from __future__ import annotations

from pathlib import Path

from rlf.apps.keep.archive import write_proof
from rlf.apps.keep.export import ModelExport, export_model
from rlf.python.runs import Run
from rlf.python.specs import DEFAULT_RUNS, AnyPath


def export(
    run: Run | str,
    folder: AnyPath,
    *,
    step: int | str = "newest",
    proof: bool = True,
    runs_folder: AnyPath = DEFAULT_RUNS,
) -> ModelExport:
    """Writes the model that a run trained as a Hugging Face folder, with its card: what `rlf export` does.

    Args:
        folder: must not exist.
        step: of the checkpoint, `newest`, or `best` by held-out success.
        proof: whether the lineage that proves the card is written too.

    Raises:
        RlfError: there is no such model, or the folder exists.
    """
    name, place = (run.id, run.runs_folder) if isinstance(run, Run) else (run, Path(runs_folder))
    prove = write_proof if proof else None
    return export_model(name, Path(folder), runs_folder=place, step=str(step), prove=prove)
