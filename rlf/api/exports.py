"""A run's model as a folder of its own, in Hugging Face's form, whichever engine trained it."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from rlf.api.lineage import open_lineage
from rlf.core.errors import RlfError
from rlf.core.hashing import hash_path
from rlf.engines.openrlhf.job.folder import Job
from rlf.engines.saved_model import OF_ADAPTERS, holds_adapters, load_saved
from rlf.lineage.marks import add_export
from rlf.lineage.reader import Reader
from rlf.lineage.records import Export, Run
from rlf.spec.model_folder import folder_on_disk

ORIGIN = "rlf_run.json"
"""File beside the weights that says which run they are of."""
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")
"""What transformers reads of a model that sees, beside its tokenizer."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A model that was written."""

    run_id: str
    step: int
    """Updates that it has seen."""
    folder: Path


def export_model(name: str, target: Path, *, runs_folder: Path) -> Exported:
    """Writes the model of a run to `target`: the final one, else that of the newest checkpoint in the same form.

    Adapters are merged into the weights of the model that they are for.

    Raises:
        RlfError: there is no such run, it has no model yet, that model does not load, or `target` exists.
    """
    if target.exists():
        raise RlfError(f"{target}: exists already. Name another folder, or remove it first.")
    with open_lineage(runs_folder) as store:
        run = Reader(store).get_run(name)
    found = _models(run)
    if not found:
        raise RlfError(
            f"run {run.record.id}: there is no model in {run.record.folder} yet: it is written when the run finishes. "
            "Go on with `rlf resume`, or train with `engine.hf_checkpoints: true` on OpenRLHF."
        )
    step, source = found[-1]
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    _write(source, temporary)
    _add_processor(folder_on_disk(run.record.plan["spec"]["model"]["path"]), temporary)
    origin = {"run": run.record.id, "name": run.record.name, "step": step, "plan_hash": run.record.plan_hash}
    (temporary / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n")
    temporary.rename(target)
    made = Export(str(target.absolute()), "huggingface", step, hash_path(target), time.time())
    with open_lineage(runs_folder) as store:
        add_export(store, run.record.id, made)
    return Exported(run.record.id, step, target)


def _write(source: Path, target: Path) -> None:
    if not holds_adapters(source):
        shutil.copytree(source, target)
        return
    merged = load_saved(source)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*OF_ADAPTERS))
    merged.save_pretrained(target)


def _add_processor(base: Path | None, target: Path) -> None:
    """Copies what reads pictures from the model that was trained: OpenRLHF saves the tokenizer alone."""
    if base is None:
        return
    for name in PROCESSOR_FILES:
        if (base / name).is_file() and not (target / name).exists():
            shutil.copy(base / name, target / name)


def _models(run: Run) -> list[tuple[int, Path]]:
    """The run's models in Hugging Face's form with their steps, the newest last."""
    folder, final = Path(run.record.folder), int(run.record.plan["spec"]["train"]["steps"])
    if run.record.engine == "local":
        return [(final, folder / "model")] if (folder / "model" / "config.json").is_file() else []
    output = run.record.plan["spec"]["engine"].get("output")
    job = Job(folder / "job", folder / "job" if output is None else Path(output).absolute() / folder.name)
    folders = job.checkpoints.glob("global_step*_hf")
    saved = [(int(path.name.removeprefix("global_step").removesuffix("_hf")), path) for path in folders]
    last = [(final, job.model)] if (job.model / "config.json").is_file() else []
    return [*sorted(saved), *last]
