"""Demonstrations for other trainers: their own loaders read the tokens and the mask that a rollout of the spec has.

A template of another program writes tools, calls and thinking in its own way. So a row holds the very text that the
spec's chat format writes: what a policy would have sampled as messages of the assistant, all between as messages of the
user, and a template beside it that adds nothing. A row whose text does not give its tokens again is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any

from rlf.core import RlfError
from rlf.core.files import write_whole
from rlf.types.trajectory import Trajectory

_TEMPLATE = (
    "{%- for message in messages -%}{%- if message['role'] == 'assistant' -%}{% generation %}{{ message['content'] }}"
    "{% endgeneration %}{%- else -%}{{ message['content'] }}{%- endif -%}{%- endfor -%}"
)
UNEQUAL = "its text does not give its tokens again"
"""Why a conversation is no row for another trainer."""


class TrainerForm(StrEnum):
    """Whose supervised trainer reads the file."""

    TRL = "trl"
    """TRL's `SFTTrainer`: JSON lines."""
    OPENRLHF = "openrlhf"
    """OpenRLHF's `train_sft`: JSON lines."""
    VERL = "verl"
    """verl's `MultiTurnSFTDataset`: Parquet."""
    LLAMA_FACTORY = "llama-factory"
    """LLaMA-Factory's sharegpt form: JSON, and its entry in the folder's `dataset_info.json`."""


WHOLE = (TrainerForm.TRL, TrainerForm.OPENRLHF)
"""Those that encode a row's text at once; the others encode message by message."""
_SUFFIXES = {TrainerForm.LLAMA_FACTORY: ".json", TrainerForm.VERL: ".parquet"}


def check_name(trainer: TrainerForm, out: Path) -> None:
    """Raises RlfError for a file name that the trainer takes for another form."""
    wanted = _SUFFIXES.get(trainer, ".jsonl")
    if out.suffix != wanted:
        raise RlfError(f"--out: got {out.name!r}; {trainer} reads {wanted}. Write e.g. `-o {out.stem}{wanted}`.")


def row_messages(
    trajectory: Trajectory, tokenizer: Any, *, encodes_whole: bool = True
) -> list[list[dict[str, str]]] | None:
    """The messages of each row of a trajectory, one without forks; None where their text gives other tokens.

    Args:
        encodes_whole: whether a trainer encodes a row's text at once, in which tokens may join messages.
    """
    rows = []
    for first, end in trajectory.stretches:
        sampled = [at for at in range(first, end) if trajectory.action_mask[at]]
        if not sampled:
            continue
        tokens = trajectory.tokens[first : sampled[-1] + 1]  # what follows the last turn is in no loss
        messages = []
        for is_action, run in groupby(range(first, first + len(tokens)), trajectory.action_mask.__getitem__):
            part = [trajectory.tokens[at] for at in run]
            text = tokenizer.decode(part, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            if tokenizer.encode(text, add_special_tokens=False) != part:
                return None
            messages.append({"role": "assistant" if is_action else "user", "content": text})
        whole = "".join(message["content"] for message in messages)
        if encodes_whole and tokenizer.encode(whole, add_special_tokens=False) != list(tokens):
            return None
        rows.append(messages)
    return rows


def write_rows(trainer: TrainerForm, rows: Sequence[list[dict[str, str]]], out: Path) -> str:
    """Writes the file and what belongs beside it. Returns the settings that read it."""
    template = out.with_suffix(".jinja")
    if trainer is not TrainerForm.LLAMA_FACTORY:
        write_whole(template, _TEMPLATE)
    if trainer is TrainerForm.VERL:
        import pyarrow as pa
        from pyarrow import parquet

        out.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table({"messages": list(rows)}), out)
        return f"data.train_files={out}, data.apply_chat_template_kwargs.chat_template: the text of {template}"
    if trainer is TrainerForm.LLAMA_FACTORY:
        write_whole(out, json.dumps([{"messages": row} for row in rows], ensure_ascii=False, indent=0) + "\n")
        _enter_dataset(out)
        return f"dataset_dir: {out.parent}, dataset: {out.stem}, template: empty"
    write_whole(out, "".join(json.dumps({"messages": row}, ensure_ascii=False) + "\n" for row in rows))
    if trainer is TrainerForm.OPENRLHF:
        return (
            f"--data.dataset {out} --data.input_key messages --data.multiturn --data.apply_chat_template "
            f'--data.tokenizer_chat_template "$(cat {template})"'
        )
    return f"SFTConfig(assistant_only_loss=True, chat_template_path={str(template)!r})"


def _enter_dataset(out: Path) -> None:
    """Names the file in the folder's `dataset_info.json`, where LLaMA-Factory looks for it; other entries stay."""
    index = out.parent / "dataset_info.json"
    try:
        known = json.loads(index.read_text(encoding="utf-8")) if index.exists() else {}
        if not isinstance(known, dict):
            raise ValueError("it holds no mapping of names")
    except ValueError as error:
        raise RlfError(f"{index}: cannot be extended: {error}. Correct it, or write into another folder.") from error
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    known[out.stem] = {
        "file_name": out.name,
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": tags,
    }
    write_whole(index, json.dumps(known, ensure_ascii=False, indent=2) + "\n")
