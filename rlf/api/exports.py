"""A run's model as a folder of its own, in Hugging Face's form, whichever engine trained it."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from rlf.api.checkpoints import job_of
from rlf.api.lineage import open_lineage
from rlf.core.errors import RlfError
from rlf.core.hashing import hash_path
from rlf.core.inside import path_inside, run_folder
from rlf.core.publish import check_free, published
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
    check_free(target)
    with open_lineage(runs_folder) as store:
        run = Reader(store).get_run(name)
        folder = run_folder(runs_folder, run.record.id)
        step, source = _newest_model(run, folder)
        _check_links(source, folder)
        with published(target) as temporary:
            _write(source, temporary)
            _add_processor(folder_on_disk(run.record.plan["spec"]["model"]["path"]), temporary)
            origin = {"run": run.record.id, "name": run.record.name, "step": step, "plan_hash": run.record.plan_hash}
            (temporary / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n")
            made = Export(str(target.absolute()), "huggingface", step, hash_path(temporary), time.time())
            # Before the folder appears: killed here, a row names nothing, and no folder is unknown to `whence`.
            add_export(store, run.record.id, made)
    return Exported(run.record.id, step, target)


def _newest_model(run: Run, folder: Path) -> tuple[int, Path]:
    found = _models(run, folder)
    if not found:
        raise RlfError(
            f"run {run.record.id}: there is no model in {folder} yet: it is written when the run finishes. Continue "
            "with `rlf resume`, or train with `engine.hf_checkpoints: true` on OpenRLHF; a run of another "
            "runs folder is exported with `--runs` and that folder."
        )
    return found[-1]


def _check_links(source: Path, folder: Path) -> None:
    """Raises RlfError where a link in a run's model leads out of it: an export would copy what it points to."""
    root = folder if source.resolve().is_relative_to(folder.resolve()) else source
    for path in source.rglob("*"):
        if path.is_symlink():
            path_inside(root, path.absolute())


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


def _models(run: Run, folder: Path) -> list[tuple[int, Path]]:
    """The run's models in Hugging Face's form with their steps, the newest last."""
    final = int(run.record.plan["spec"]["train"]["steps"])
    if run.record.engine == "local":
        return [(final, folder / "model")] if (folder / "model" / "config.json").is_file() else []
    job = job_of(run.record, folder)
    folders = job.checkpoints.glob("global_step*_hf")
    saved = [(int(path.name.removeprefix("global_step").removesuffix("_hf")), path) for path in folders]
    last = [(final, job.model)] if (job.model / "config.json").is_file() else []
    return [*sorted(saved), *last]
