"""A run's model as a folder of its own, in Hugging Face's form, with a card that says what it is."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.api.lineage import open_reader
from rlf.api.runs.models import SavedModel, choose_model, trained_run
from rlf.api.runs.pushing import Pushed
from rlf.apps.share.publish import CURVE, card_markdown, read_card
from rlf.builtin.names import BUILTIN
from rlf.chat.format import FORMATS, detect_format
from rlf.chat.on_disk import read_tokenizer
from rlf.core.errors import RlfError
from rlf.core.files import check_free, published
from rlf.core.identity import hash_path
from rlf.lineage.marks import add_export
from rlf.lineage.reader import Reader
from rlf.lineage.records import Export, Run
from rlf.reports.report import read_report
from rlf.spec.model_files import folder_on_disk

ORIGIN = "rlf_run.json"
"""File beside the weights that says which run they are of."""
CARD = "README.md"
_OF_BUILTINS = "mit"
_LICENCE = re.compile(r"^license:\s*[\"']?([\w.+-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Exported:
    """A model that was written."""

    run_id: str
    step: int
    """Updates that it has seen."""
    folder: Path
    vllm: tuple[str, ...] = ()
    """The command that serves it with vLLM, its calls read by vLLM's parser where that has one."""
    pushed: Pushed | None = None
    """The upload that was asked for."""


def export_model(name: str, target: Path, *, runs_folder: Path, step: str = "newest") -> Exported:
    """Writes a model of a run to `target`: the final one, or that of a checkpoint; with its card.

    Adapters are merged into the weights of the model that they are for.

    Args:
        step: the updates that it has seen, `newest`, or `best`: that of the highest held-out success.

    Raises:
        RlfError: there is no such run, it has no model yet, that model does not load, or `target` exists.
    """
    check_free(target)
    with open_reader(runs_folder) as reader:
        run = trained_run(reader, name)
        source = choose_model(reader, run, runs_folder, step, "--step")
        with published(target) as temporary:
            source.write(temporary)
            vllm = vllm_command(temporary, run, shown_as=target)
            _write_card(reader, run, source, temporary, vllm)
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
    return Exported(run.record.id, source.step, target, vllm)


def vllm_command(folder: Path, run: Run, *, shown_as: Path) -> tuple[str, ...]:
    """`vllm serve` of an exported folder, calls read by vLLM's parser of the run's chat format where it has one."""
    name = run.record.plan["spec"].get("chat", {}).get("format", "auto")
    command = ["vllm", "serve", str(shown_as), "--served-model-name", run.record.name]
    try:
        tokenizer = read_tokenizer(folder) if name == "auto" else None
        known = detect_format(tokenizer)[0] if tokenizer is not None else name
        parser = FORMATS.get(known).vllm_parser
    except RlfError:
        return tuple(command)
    return (*command, "--enable-auto-tool-choice", "--tool-call-parser", parser) if parser else tuple(command)


def _write_card(reader: Reader, run: Run, source: SavedModel, folder: Path, vllm: Sequence[str]) -> None:
    licence = find_licence(str(source.base["path"]))
    usage = [
        ("served with vLLM", shlex.join([*vllm[:2], ".", *vllm[3:]])),
        ("served with the tools of its run beside it", "rlf serve ."),
        ("conversation, with tools", "rlf chat ."),
    ]
    card = read_card(reader, read_report(reader, run.record.id), source.step, licence=licence, usage=usage)
    (folder / CARD).write_text(card_markdown(card), encoding="utf-8")
    if card.image is not None:
        (folder / CURVE).write_text(card.image, encoding="utf-8")


def find_licence(path: str) -> str:
    """The licence that a model's own card names; empty where it names none or is not on this machine."""
    if path.startswith(BUILTIN):
        return _OF_BUILTINS
    folder = folder_on_disk(path)
    card = None if folder is None else folder / CARD
    if card is None or not card.is_file():
        return ""
    text = card.read_text(encoding="utf-8", errors="replace")
    head = text.split("\n---", 1)[0] if text.startswith("---") else ""
    found = _LICENCE.search(head)
    return found[1] if found else ""
