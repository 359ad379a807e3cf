"""The models of a run, whichever engine trained it: which there are, and one of them on the disk."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rlf.core.errors import RlfError
from rlf.core.files import path_inside, run_folder, scratch
from rlf.engines.engine import Engine
from rlf.engines.saved_model import OF_ADAPTERS, holds_adapters, load_saved
from rlf.lineage.reader import Reader
from rlf.lineage.records import EVALUATION, SWEEP, Run
from rlf.lineage.values import num_before
from rlf.runs.place import Places
from rlf.runs.restore import find_checkpoint_damage, kept_checkpoints, recorded_engine
from rlf.spec.engines import Feature
from rlf.spec.model_files import folder_on_disk
from rlf.training.evaluation import least_success

logger = logging.getLogger(__name__)

PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")
"""Files that transformers reads of a vision-language model, beside its tokenizer."""


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model of a run, as it is on the disk."""

    step: int
    """Updates that it has seen."""
    path: Path
    engine: Engine
    base: Mapping[str, Any]
    """The plan's `model` section, with its paths as they are now."""
    is_checkpoint: bool = False
    """Whether it is a checkpoint, and not a Hugging Face folder."""

    @property
    def is_whole(self) -> bool:
        """Whether the folder is a complete model: neither a checkpoint nor only adapters."""
        return not self.is_checkpoint and not holds_adapters(self.path)

    def write(self, target: Path) -> None:
        """Writes a Hugging Face folder; adapters are merged into the weights of the model that they are for."""
        if not self.is_checkpoint:
            _write_whole(self.path, target)
        else:
            with scratch("rlf-export", parent=target.parent) as folder:
                saved = folder / "model"
                self.engine.save_checkpoint_model(self.base, self.path, saved)
                _write_whole(saved, target)
        _add_processor(folder_on_disk(self.base["path"]), target)


def trained_run(reader: Reader, name: str) -> Run:
    """The run that has the model: `latest` counts those that trained; for an evaluation the one that it was of."""
    if (before := num_before(name)) is not None:
        trained = (run for run in reader.list_runs() if run.record.engine not in (SWEEP, EVALUATION))
        if (found := next(islice(trained, before, None), None)) is not None:
            return found
    run = reader.get_run(name)
    if run.record.engine == EVALUATION and run.record.parent_id is not None:
        return reader.get_run(run.record.parent_id)
    if run.record.engine in (SWEEP, EVALUATION):
        kind = "a sweep" if run.record.engine == SWEEP else "an evaluation whose target is not a run"
        raise RlfError(f"run {run.record.id}: is {kind} and has no model. Name a training run.")
    return run


def choose_model(reader: Reader, run: Run, runs_folder: Path, wanted: str, asked: str) -> SavedModel:
    """The model of a run after some number of updates.

    Args:
        wanted: the updates that it has seen, `newest`, or `best`: that of the highest held-out success.
        asked: where that was said, for messages.

    Raises:
        RlfError: the run has no model yet, or not that one; with those there are.
    """
    folder = run_folder(runs_folder, run.record.id)
    by_step = _list_models(reader, run, folder)
    if not by_step:
        raise RlfError(
            f"run {run.record.id}: there is no model in {folder} yet: the first checkpoint writes it, or "
            "with `engine.hf_checkpoints: true` where these are shards. Continue with `rlf resume`; a run of "
            "another runs folder is exported with `--runs` and that folder."
        )
    step = _wanted_step(reader, run.record.id, sorted(by_step), wanted, asked)
    if step not in by_step:
        raise RlfError(
            f"{asked}: got {wanted!r}; run {run.record.id} has models of steps {', '.join(map(str, sorted(by_step)))}. "
            "Name one of these, `newest`, or `best`."
        )
    source = by_step[step].path
    root = folder if source.resolve().is_relative_to(folder.resolve()) else source
    for path in source.rglob("*"):
        if path.is_symlink():
            path_inside(root, path.absolute())
    return by_step[step]


def _list_models(reader: Reader, run: Run, folder: Path) -> dict[int, SavedModel]:
    """The run's models by step: one that was written as a model before a checkpoint of the same step."""
    engine, found = recorded_engine(run.record), dict[int, SavedModel]()
    base = Places.of(run.record, reader.store).values(run.record.plan["spec"]["model"])
    if Feature.CHECKPOINT_MODELS not in engine.LACKS:
        root = engine.checkpoints_in(folder)
        for saved in kept_checkpoints(reader, run.record.id):
            damage = find_checkpoint_damage(run.record, saved)
            if damage is not None:
                logger.warning("damaged checkpoint skipped: step %d: %s: %s", saved.step, damage, saved.path)
                continue
            place = path_inside(root, Path(saved.path).absolute())
            found[saved.step] = SavedModel(saved.step, place, engine, base, is_checkpoint=True)
    written = engine.models_in(folder, int(run.record.plan["spec"]["train"]["steps"]))
    return found | {step: SavedModel(step, path, engine, base) for step, path in written.items()}


def _wanted_step(reader: Reader, run_id: str, steps: list[int], wanted: str, asked: str) -> int:
    if wanted == "newest":
        return steps[-1]
    if wanted != "best":
        return int(wanted) if wanted.isdecimal() else -1
    sampled = [item for item in reader.evaluations(run_id) if item.mode == "sampled" and "success" in item.metrics]
    num_questions = max((item.metrics.get("num_questions", 1.0) for item in sampled), default=1.0)
    found = [(least_success(item.metrics, num_questions), -item.step) for item in sampled if item.step in steps]
    scored = [(success, step) for success, step in found if success is not None]
    if not scored:
        raise RlfError(
            f"{asked}: got best; none of the models of run {run_id} was evaluated. Name a step, or `newest`."
        )
    return -max(scored)[1]


def _write_whole(source: Path, target: Path) -> None:
    if not holds_adapters(source):
        shutil.copytree(source, target)
        return
    merged = load_saved(source)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*OF_ADAPTERS))
    merged.save_pretrained(target)


def _add_processor(base: Path | None, target: Path) -> None:
    """Copies what reads images from the model that was trained: some engines save the tokenizer alone."""
    if base is None:
        return
    for name in PROCESSOR_FILES:
        if (base / name).is_file() and not (target / name).exists():
            shutil.copy(base / name, target / name)


ORIGIN = "rlf_run.json"
"""File beside the weights that says which run they are of."""
