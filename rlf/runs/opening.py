"""What is looked at before a run's first step: its mask certificate, the room on the disk, what its evaluations show.

A certificate is played once, and kept beside the runs by the hash of all that it depends on.
"""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import rlf
from rlf.core import hash_bytes, hash_json
from rlf.core.errors import RlfError
from rlf.core.files import write_whole
from rlf.core.identity import hash_path, is_sealed
from rlf.engines.engine import engine_of
from rlf.plan.estimate import ModelShape, estimate_work, shape_of
from rlf.reports.paired import power_of, power_words
from rlf.runs.plans import CheckedSpec
from rlf.spec.model_files import folder_on_disk, read_config, read_shapes
from rlf.types.events import Notice

if TYPE_CHECKING:
    from rlf.chat import ChatFormat
    from rlf.chat.format import Certificate
    from rlf.chat.settings import WhenFull
    from rlf.spec.models import RunSpec
    from rlf.types import ToolDescription

_FOLDER = "certificates"
_SOURCES = ("chat", "rollout", "types")


def certified(spec: RunSpec, chat: ChatFormat, runs_folder: Path | None = None) -> Certificate:
    """The certificate of a run's format with its tools, from an earlier run's where nothing has changed since.

    Args:
        runs_folder: where certificates are kept; None plays in any case and keeps nothing.

    Raises:
        CheckError: what differs.
    """
    from rlf.chat.format import Certificate

    name, tools = format_name(spec, chat), spec.shown_tools

    def play() -> Certificate:
        from rlf.rollout.certificate import certify  # which plays: not where an earlier run's certificate holds

        system, speaks, full = spec.data.train.system, _world_speaks(spec), _when_full(spec)
        return certify(chat, name, tools, history=spec.chat.history, when_full=full, system=system, speaks=speaks)

    if runs_folder is None:
        return play()
    file = runs_folder / _FOLDER / f"{_certificate_key(spec, chat, name, tools)}.json"
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):  # not there, damaged or edited
        stored = json.loads(file.read_text(encoding="utf-8"))
        if is_sealed(stored):
            del stored["sha256"]
            return Certificate(**stored | {key: tuple(stored[key]) for key in ("checks", "differences")})
    certificate = play()
    write_whole(file, json.dumps(asdict(certificate) | {"sha256": hash_json(asdict(certificate))}))
    return certificate


def certificate_notice(spec: RunSpec, chat: ChatFormat, runs_folder: Path) -> Notice:
    """The certificate as the event that is kept with the run. Raises CheckError."""
    certificate = certified(spec, chat, runs_folder)
    size = f"{certificate.num_turns} turns, {certificate.num_sampled} of {certificate.num_tokens} tokens sampled"
    text = f"chat format {certificate.format}: {len(certificate.checks)} checks hold on {size}"
    level = "warning" if certificate.differences else "info"
    text_with_differences = "; ".join([text, *certificate.differences])
    return Notice(level, text_with_differences, {"certificate": asdict(certificate)})


def format_name(spec: RunSpec, chat: ChatFormat) -> str:
    """The name of the run's format, detected where the spec leaves it open."""
    from rlf.chat import detect_format

    return detect_format(chat.tokenizer)[0] if spec.chat.format == "auto" else spec.chat.format


def _when_full(spec: RunSpec) -> WhenFull | None:
    return None if spec.rollout.context is None else spec.rollout.context.when_full


def _world_speaks(spec: RunSpec) -> bool:
    return spec.env is not None and spec.env.speaks


def _certificate_key(spec: RunSpec, chat: ChatFormat, name: str, tools: Sequence[ToolDescription]) -> str:
    backend = getattr(chat.tokenizer, "backend_tokenizer", None)
    state = json.dumps(chat.tokenizer.get_vocab(), sort_keys=True) if backend is None else backend.to_str()
    return hash_json(
        {
            "format": name,
            "history": spec.chat.history,
            "when_full": _when_full(spec),
            "thinking_tag": spec.chat.thinking_tag,
            "system": spec.data.train.system,
            "speaks": _world_speaks(spec),
            "tools": [tool.as_openai() for tool in tools],
            "template": chat.tokenizer.chat_template,
            "tokenizer": hash_bytes(state.encode()),
            "code": _code_hash(type(chat)),
        }
    )


@cache
def _code_hash(chat: type[ChatFormat]) -> str:
    """Of the sources that render, parse and play, and of those beside the format's own, which an app may bring."""
    root = Path(rlf.__file__).parent
    files = {file for name in _SOURCES for file in (root / name).rglob("*.py")}
    beside = Path(inspect.getfile(chat)).parent.glob("*.py")
    return hash_json([hash_path(file) for file in sorted(files.union(beside))])


def power_notices(checked: CheckedSpec) -> list[Notice]:
    """The differences that a run's evaluations can show, known before it starts; none without evaluations."""
    work = estimate_work(checked.plan.spec, checked.num_train_rows, checked.num_eval_rows)
    if not work.num_evaluations:
        return []
    text = f"evaluations: {power_words(power_of(work.num_questions))}"
    return [Notice("info", text, {"questions": work.num_questions})]


def check_room(spec: RunSpec, folder: Path) -> None:
    """Holds what a run writes against the disk, before it starts. Its lineage, known by a bound alone, is left out.

    Args:
        folder: the run's; what it has written already needs no room again.

    Raises:
        RlfError: there is too little room.
    """
    shape, _ = model_shape(spec)
    taken = engine_of(spec).report(spec, shape, folder, gpu_bytes=None, num_eval_rows=0)
    free_bytes = None if taken.disk_folder is None else find_free_bytes(taken.disk_folder)
    if taken.disk is None or taken.disk_folder is None or free_bytes is None:
        return
    needed = taken.disk.total_bytes - sum(one.stat().st_size for one in taken.disk_folder.rglob("*") if one.is_file())
    if needed > free_bytes:
        parts = ", ".join(f"{part.name} {part.size_bytes / 1e9:.3g} GB" for part in taken.disk.parts)
        raise RlfError(
            f"{taken.disk_folder}: {free_bytes / 1e9:.3g} GB are free, and the run still writes up to "
            f"{needed / 1e9:.3g} GB ({parts}). Make room, lower checkpoint.keep, or name another folder with --runs."
        )


def find_free_bytes(folder: Path) -> int | None:
    """What a user may write where a folder is or will be; None where this machine does not see the disk."""
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
    return None if there == Path(there.anchor) else shutil.disk_usage(there).free


def model_shape(spec: RunSpec) -> tuple[ModelShape | None, str]:
    """The model's sizes, or why they are not known."""
    path = spec.model.path
    folder = folder_on_disk(path)
    if folder is None:
        return None, f"{path} is not on this machine; it is fetched when the run starts"
    tensors = read_shapes(folder)
    if not tensors:
        return None, f"{path} has no safetensors to read sizes from"
    shape = shape_of(read_config(folder), tensors)
    return shape, "" if shape is not None else f"the config.json of {path} is not that of a plain decoder"
