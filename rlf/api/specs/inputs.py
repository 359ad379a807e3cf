"""What a run is made from beside the files of its plan: tools' sources, the model's own files, builtins."""

from __future__ import annotations

from pathlib import Path

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.chat.on_disk import read_chat_template
from rlf.core.hashing import hash_bytes, hash_json, hash_path
from rlf.lineage.records import FileRecord
from rlf.plan import Plan
from rlf.spec.looking.model_folder import folder_on_disk, named_folder
from rlf.spec.reading.layers import absolute
from rlf.spec.reading.paths import identity

_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "added_tokens.json")
"""Files that decide a text's tokens; settings beside them name the special ones, which the template spells out."""


def source_files(plan: Plan, cwd: Path) -> list[FileRecord]:
    """The tools of a plan by what decides their answers, as far as that can be known: what an import leads to, say.

    Those that name files of the user's are left out: the plan has these, with paths that start at `cwd`.
    """
    named = {str(absolute(Path(file.path), cwd)) for file in plan.files if file.role == "code"}
    return [
        FileRecord("source", f"tools.{tool.name}", tool.target.source_hash())
        for tool in plan.spec.tools
        if not any(path in tool.target.model_dump_json() for path in named)
    ]


def model_files(plan: Plan) -> list[FileRecord]:
    """What turns words into tokens and back, apart from the weights; and the model where only its id is named.

    Nothing for a model that has not been fetched.
    """
    path = plan.spec.model.path
    folder = folder_on_disk(path)
    if folder is None:
        return []
    tokenizer = [[name, hash_path(folder / name)] for name in _TOKENIZER if (folder / name).is_file()]
    records = [FileRecord("tokenizer", path, hash_json(tokenizer))]
    template = read_chat_template(folder)
    if template is not None:
        records.append(FileRecord("template", path, hash_bytes(template.encode())))
    if named_folder(path) is None and (whole := identity(folder)) is not None:
        records.append(FileRecord("model", path, whole))
    return records


def builtin_files(plan: Plan) -> list[FileRecord]:
    """The builtins that a plan names, with the hash of what they hold in this version."""
    data = plan.spec.data
    named = [("data", source.path) for source in (data.train, data.eval) if source is not None]
    named.append(("model", plan.spec.model.path))
    return [
        FileRecord(role, path, hash_path(builtin_path(path.removeprefix(BUILTIN))))
        for role, path in dict.fromkeys(named)
        if path.startswith(BUILTIN)
    ]
