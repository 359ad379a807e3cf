"""A run's model as a Hugging Face folder with a card that says what it is; and that folder on the Hugging Face Hub, or
on a server of its protocol (`HF_ENDPOINT`)."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlf.apps.keep.card import CURVE, Card, card_markdown, read_card
from rlf.apps.keep.upkeep import add_export
from rlf.builtin.names import BUILTIN
from rlf.chat.format import FORMATS, detect_format
from rlf.chat.on_disk import read_tokenizer
from rlf.core.errors import RlfError, RunError, first_line
from rlf.core.files import check_free, published
from rlf.core.identity import hash_path
from rlf.lineage.reader import Reader
from rlf.lineage.records import Export, Run
from rlf.reports.report import read_report
from rlf.runs.exports import ORIGIN, choose_model, trained_run
from rlf.runs.place import open_reader
from rlf.spec.model_files import folder_on_disk

CARD = "README.md"
PROOF, PROOF_LINEAGE = "rlf_proof.json", "rlf_proof.db"
"""Files that `rlf verify` holds a card against: hashes of the others, and the run's lineage."""
_OF_BUILTINS = "mit"
_LICENCE = re.compile(r"^license:\s*[\"']?([\w.+-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Upload:
    """A model that was uploaded, or would be."""

    repo: str
    url: str
    files: dict[str, int]
    """Sizes in bytes, by name."""
    dry_run: bool
    """Whether nothing was sent."""


@dataclass(frozen=True, slots=True)
class ModelExport:
    """A model that was written."""

    run_id: str
    step: int
    """Updates that it has seen."""
    folder: Path
    vllm: tuple[str, ...] = ()
    """The command that serves it with vLLM, its calls read by vLLM's parser where that has one."""
    pushed: Upload | None = None
    """The upload that was asked for."""


def export_model(
    name: str,
    target: Path,
    *,
    runs_folder: Path,
    step: str = "newest",
    prove: Callable[[Reader, Run, int, Path], object] | None = None,
) -> ModelExport:
    """Writes a model of a run to `target`: the final one, or that of a checkpoint; with its card.

    Adapters are merged into the weights of the model that they are for.

    Args:
        step: the updates that it has seen, `newest`, or `best`: that of the highest held-out success.
        prove: adds to the written folder what proves its card, from the run and the updates.

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
            card = make_card(reader, run, source.step, temporary, find_licence(str(source.base["path"])))
            (temporary / CARD).write_text(card_markdown(card), encoding="utf-8")
            if card.image is not None:
                (temporary / CURVE).write_text(card.image, encoding="utf-8")
            origin = {
                "run": run.record.id,
                "name": run.record.name,
                "step": source.step,
                "plan_hash": run.record.plan_hash,
            }
            (temporary / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n")
            if prove is not None:
                prove(reader, run, source.step, temporary)
            made = Export(str(target.absolute()), "huggingface", source.step, hash_path(temporary), time.time())
            # Before the folder appears: killed here, a row names nothing, and no folder is unknown to `whence`.
            add_export(reader.store, run.record.id, made)
    return ModelExport(run.record.id, source.step, target, vllm)


def push_folder(folder: Path, repo: str, *, private: bool = False, dry_run: bool = False) -> Upload:
    """Uploads an exported folder as a model's repository, which is made where there is none.

    Args:
        repo: `OWNER/NAME`.
        dry_run: whether nothing is sent, so that only what would be is returned.

    Raises:
        RlfError: the repository's name cannot be one.
        RunError: the Hub refuses, or cannot be reached; the folder stays.
    """
    from httpx import HTTPError
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # its list of names lacks it

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise RlfError(f"--push: got {repo!r}: {first_line(error)} Write OWNER/NAME.") from error
    api = HfApi(endpoint=constants.ENDPOINT)
    files = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
    url = f"{api.endpoint}/{repo}"
    if dry_run:
        return Upload(repo, url, files, dry_run=True)
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"Model exported by rlf: {folder.name}")
    except (HfHubHTTPError, HTTPError, OSError) as error:
        raise RunError(
            f"--push {repo}: {first_line(error)} The model is in {folder}: log in with `hf auth login`, or set "
            f"HF_TOKEN, and upload it with `hf upload {repo} {folder}`."
        ) from error
    return Upload(repo, url, files, dry_run=False)


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


def make_card(reader: Reader, run: Run, step: int, folder: Path, licence: str) -> Card:
    """The card of a model in a folder."""
    vllm = vllm_command(folder, run, shown_as=folder)
    usage = [
        ("served with vLLM", shlex.join([*vllm[:2], ".", *vllm[3:]])),
        ("served with the tools of its run beside it", "rlf serve ."),
        ("conversation, with tools", "rlf chat ."),
        ("what of this card is proven", "rlf verify ."),
    ]
    return read_card(reader, read_report(reader, run.record.id), step, licence=licence, usage=usage)


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
