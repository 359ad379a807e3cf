"""A run's model as a folder of its own, in Hugging Face's form, whichever engine trained it."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.api.lineage import open_reader
from rlf.api.running.checkpoints import find_damage, kept_checkpoints
from rlf.api.running.restoring import Places
from rlf.core.errors import RlfError
from rlf.core.hashing import hash_path
from rlf.core.inside import path_inside, run_folder
from rlf.core.publish import check_free, published
from rlf.engines.engine import Engine, recorded_engine
from rlf.engines.saved_model import OF_ADAPTERS, holds_adapters, load_saved
from rlf.lineage.marks import add_export
from rlf.lineage.reader import Reader
from rlf.lineage.records import Export, Run
from rlf.spec.engine import Feature
from rlf.spec.looking.model_folder import folder_on_disk

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


@dataclass(frozen=True, slots=True)
class _Source:
    """A model of a run, as it is on the disk."""

    step: int
    path: Path
    is_checkpoint: bool = False
    """Whether it is a checkpoint, and not a Hugging Face folder."""


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
        folder = run_folder(runs_folder, run.record.id)
        source = _choose(reader, run, folder, step)
        _check_links(source.path, folder)
        model = Places.of(run.record, reader.store).values(run.record.plan["spec"]["model"])
        with published(target) as temporary:
            _write(recorded_engine(run.record), source, model, temporary)
            _add_processor(folder_on_disk(model["path"]), temporary)
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


def _choose(reader: Reader, run: Run, folder: Path, wanted: str) -> _Source:
    """The model of a step, `best` or `newest`. Raises RlfError with the steps there are."""
    found = _models(reader, run, folder)
    if not found:
        raise RlfError(
            f"run {run.record.id}: there is no model in {folder} yet: the first is there with the first checkpoint, or "
            "with `engine.hf_checkpoints: true` where these are shards. Continue with `rlf resume`; a run of "
            "another runs folder is exported with `--runs` and that folder."
        )
    by_step = {source.step: source for source in found}
    step = _wanted_step(reader, run.record.id, sorted(by_step), wanted)
    if step not in by_step:
        raise RlfError(
            f"--step: got {wanted!r}; run {run.record.id} has models of steps {', '.join(map(str, sorted(by_step)))}. "
            "Name one of these, `newest`, or `best`."
        )
    return by_step[step]


def _wanted_step(reader: Reader, run_id: str, steps: list[int], wanted: str) -> int:
    if wanted == "newest":
        return steps[-1]
    if wanted != "best":
        return int(wanted) if wanted.isdecimal() else -1
    done = [item for item in reader.evaluations(run_id) if item.mode == "sampled" and item.step in steps]
    scored = [(item.metrics["success"], -item.step) for item in done if "success" in item.metrics]
    if not scored:
        raise RlfError(f"--step best: none of the models of run {run_id} was evaluated. Name a step, or `newest`.")
    return -max(scored)[1]


def _check_links(source: Path, folder: Path) -> None:
    """Raises RlfError where a link in a run's model leads out of it: an export would copy what it points to."""
    root = folder if source.resolve().is_relative_to(folder.resolve()) else source
    for path in source.rglob("*"):
        if path.is_symlink():
            path_inside(root, path.absolute())


def _write(engine: Engine, source: _Source, model: Any, target: Path) -> None:
    """Args: model: the plan's `model` section."""
    if not source.is_checkpoint:
        _write_whole(source.path, target)
        return
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        saved = Path(folder) / "model"
        engine.save_checkpoint_model(model, source.path, saved)
        _write_whole(saved, target)


def _write_whole(source: Path, target: Path) -> None:
    if not holds_adapters(source):
        shutil.copytree(source, target)
        return
    merged = load_saved(source)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*OF_ADAPTERS))
    merged.save_pretrained(target)


def _add_processor(base: Path | None, target: Path) -> None:
    """Copies what reads pictures from the model that was trained: some engines save the tokenizer alone."""
    if base is None:
        return
    for name in PROCESSOR_FILES:
        if (base / name).is_file() and not (target / name).exists():
            shutil.copy(base / name, target / name)


def _models(reader: Reader, run: Run, folder: Path) -> list[_Source]:
    """The run's models, each step once: one that was written as a model before a checkpoint of the same step."""
    engine, found = recorded_engine(run.record), dict[int, _Source]()
    if Feature.CHECKPOINT_MODELS not in engine.LACKS:
        root = engine.checkpoints_in(folder)
        for saved in kept_checkpoints(reader, run.record.id):
            if find_damage(run.record, saved) is None:
                found[saved.step] = _Source(saved.step, path_inside(root, Path(saved.path).absolute()), True)
    written = engine.models_in(folder, int(run.record.plan["spec"]["train"]["steps"]))
    return list((found | {step: _Source(step, path) for step, path in written.items()}).values())
