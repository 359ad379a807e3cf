"""Mask certificates of runs: played before the first step, kept beside the runs by the hash of all they depend on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import rlf
from rlf.core import hash_bytes, hash_json
from rlf.core.files import write_whole
from rlf.core.identity import hash_path, is_sealed
from rlf.types.events import Notice

if TYPE_CHECKING:
    from rlf.chat import ChatFormat
    from rlf.chat.policy import WhenFull
    from rlf.rollout.certificate import Certificate
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
    from rlf.rollout.certificate import Certificate, certify

    name, tools = format_name(spec, chat), spec.shown_tools

    def play() -> Certificate:
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
            "code": _code_hash(),
        }
    )


@cache
def _code_hash() -> str:
    """Of the sources that render, parse and play."""
    root = Path(rlf.__file__).parent
    files = sorted(file for name in _SOURCES for file in (root / name).rglob("*.py"))
    return hash_json([hash_path(file) for file in files])
