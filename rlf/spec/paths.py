"""Paths of data and models: a file next to the spec, a `builtin:` name, or a Hugging Face id."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic_core import PydanticCustomError

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.core import Fault, RlfError, hash_bytes, hash_json, hash_path
from rlf.core.files import DATA_SUFFIXES, TEMPLATE_SUFFIXES, is_folder_name, shown_path
from rlf.core.identity import MIN_BYTES, remember, stamp_file
from rlf.data import mixture_files
from rlf.environments.kind import ENV_KINDS, EnvSpec
from rlf.rewards.term import Term
from rlf.spec.agent import split_command
from rlf.spec.code import project_code
from rlf.spec.layers import ITEM_LISTS, InputFile, absolute
from rlf.spec.models import RunSpec
from rlf.spec.nodes import KeyPath, Node, edit, edit_leaves, show
from rlf.tools.declaration import ToolDeclaration

SOLUTIONS, TEACHER = ("train", "algorithm", "demonstrations"), ("train", "algorithm", "teacher")
DATA_PATHS = (("data", "train", "path"), ("data", "eval", "path"), ("data", "demonstrations", "path"), SOLUTIONS)
MODEL_PATH = ("model", "path")
DATA_FILES = (("template", TEMPLATE_SUFFIXES), ("system", TEMPLATE_SUFFIXES), ("examples", DATA_SUFFIXES))
"""Keys of a dataset whose text names a file when it ends so."""
JUDGE_FILES = (("sentinels", "file"), ("cache", "file"), ("serve", "model"))
"""Keys of a judge that name a file or may name a folder."""
_SMALL_BYTES = 1_000_000
_NUM_SAMPLES = 32
# Samples of large files: hashing a model of many gigabytes at every start would take minutes.
_SAMPLE_BYTES = 16_384
_MAX_ID_PARTS = 2
"""Of the Hub: OWNER/NAME."""
# A suffix begins with a letter: `org/name-2.5` is the id of a dataset and no file.
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,9}")


def resolve_paths(root: Node, faults: list[Fault]) -> Node:
    """The tree with paths to files made absolute; builtin names are checked, other names left alone."""
    for path in (*DATA_PATHS, MODEL_PATH, TEACHER):
        root = edit(root, path, partial(_resolve_name, faults=faults, is_data=path in DATA_PATHS))
    for name in ("train", "eval"):
        for key, suffixes in DATA_FILES:
            root = edit(root, ("data", name, key), partial(_resolve_file_node, suffixes=suffixes))
    for key in ITEM_LISTS:
        root = edit(root, (key,), resolve_callables)
    root = edit(root, ("rollout", "agent"), resolve_callables)
    root = edit(root, ("rollout", "agent", "files"), partial(_change_each, change=_absolute_path))
    root = edit(root, ("rollout", "agent", "command"), _place_command)
    root = edit(edit(root, ("env",), resolve_callables), ("env",), _resolve_env_files)
    return edit(
        edit(root, ("tools",), resolve_tool_files), ("rewards",), partial(_change_each, change=_resolve_reward_files)
    )


def _change_each(node: Node, change: Callable[[Node], Node]) -> Node:
    """A list with every item changed; anything else as it is."""
    return replace(node, value=[change(item) for item in node.items]) if isinstance(node.value, list) else node


def _resolve_name(node: Node, faults: list[Fault], *, is_data: bool) -> Node:
    if not isinstance(node.value, str):
        return node
    return replace(node, value=_resolve_path(node, node.value, faults, is_data=is_data), written=None)


def _resolve_file_node(node: Node, suffixes: tuple[str, ...]) -> Node:
    return replace(_absolute_path(node), written=None) if str(node.value).endswith(suffixes) else node


def _resolve_env_files(env: Node) -> Node:
    """With the files that a world's kind names made absolute."""
    kind = env.get("kind")
    if kind is None or kind.value not in ENV_KINDS.names():
        return env
    env = edit(edit(env, ("server",), _resolve_server), ("world",), _resolve_env_files)
    for name in () if (worlds := env.get("worlds")) is None else worlds.mapping:
        env = edit(env, ("worlds", name), _resolve_env_files)
    for key in ("files", *ENV_KINDS.get(str(kind.value)).FILES):
        env = edit(
            env,
            (key,),
            lambda node: _change_each(node, _absolute_path) if isinstance(node.value, list) else _absolute_path(node),
        )
    return env


def _resolve_server(node: Node) -> Node:
    from rlf.spec.servers import resolve_server

    return resolve_server(node)


def _place_command(node: Node) -> Node:
    """With the words of an agent's command, and those that name a file beside the spec as paths."""
    try:
        words = split_command(node.value)
    except PydanticCustomError:  # reported where it is validated
        return node
    if not isinstance(words, tuple):
        return _change_each(node, _place_word)
    return replace(node, value=[_place_word(replace(node, value=word, written=None)) for word in words], written=None)


def _place_word(node: Node) -> Node:
    is_file = (
        isinstance(node.value, str) and "{{" not in node.value and absolute(Path(node.value), node.folder).is_file()
    )
    return _absolute_path(node) if is_file else node


def env_files(env: EnvSpec | None, path: KeyPath = ("env",)) -> Iterator[tuple[KeyPath, str]]:
    """Files that a world's kind names, each with the key that names it; also of a world within it."""
    for key in () if env is None else ("files", *env.FILES):
        value = getattr(env, key)
        if isinstance(value, str):
            yield (*path, key), value
        elif value is not None:
            yield from (((*path, key, place), file) for place, file in enumerate(value))
    if (inner := getattr(env, "world", None)) is not None:
        yield from env_files(inner, (*path, "world"))
    for name, inner in (getattr(env, "worlds", None) or {}).items():
        yield from env_files(inner, (*path, "worlds", name))


def _resolve_reward_files(item: Node) -> Node:
    """With the `files` of a term, and those that a judge's sections name, made absolute."""
    item = edit(item, ("files",), partial(_change_each, change=_absolute_path))
    for path in JUDGE_FILES:
        item = edit(item, path, _absolute_path if path[-1] == "file" else _absolute_folder)
    return item


def _absolute_folder(node: Node) -> Node:
    return _absolute_path(node) if isinstance(node.value, str) and is_folder_name(node.value) else node


def resolve_callables(node: Node) -> Node:
    """With `callable: file.py:name` made absolute: the keys of one item may come from files in several folders."""
    return edit_leaves(node, _resolve_callable)


def _resolve_callable(path: KeyPath, node: Node) -> Node:
    file, _, name = str(node.value).rpartition(":")
    if path[-1:] not in (("callable",), ("make",)) or not isinstance(node.value, str) or not file.endswith(".py"):
        return node
    return replace(node, value=f"{absolute(Path(file), node.folder)}:{name}")


def resolve_tool_files(node: Node) -> Node:
    """With the `files` of tools, an agent's own included, made absolute."""
    if isinstance(node.value, list):
        return _change_each(node, resolve_tool_files)
    node = edit(node, ("files",), partial(_change_each, change=_absolute_path))
    return edit(node, ("target", "tools"), resolve_tool_files)


def _absolute_path(node: Node) -> Node:
    """A path from the folder of the file that says it; anything but text as it is."""
    return replace(node, value=str(absolute(Path(node.value), node.folder))) if isinstance(node.value, str) else node


def declared_files(tools: Sequence[ToolDeclaration]) -> Iterator[tuple[KeyPath, str]]:
    """Files that tools, an agent's own included, declare to read, each with the key that names it."""
    for path, tool in _all_tools(tools):
        yield from (((*path, "files", number), file) for number, file in enumerate(tool.files))


def reward_files(terms: Sequence[Term]) -> Iterator[tuple[KeyPath, str]]:
    """Files that reward terms declare to be a part of them, each with the key that names it."""
    for index, term in enumerate(terms):
        yield from ((("rewards", index, "files", number), file) for number, file in enumerate(term.files))


def _all_tools(
    tools: Sequence[ToolDeclaration], path: KeyPath = ("tools",)
) -> Iterator[tuple[KeyPath, ToolDeclaration]]:
    """Tools, each agent's own included, with their keys."""
    for index, tool in enumerate(tools):
        yield (*path, index), tool
        yield from _all_tools(getattr(tool.target, "tools", ()), (*path, index, "target", "tools"))


def local_inputs(spec: RunSpec) -> list[InputFile]:
    """The code, data and model that a spec names on this machine, with their hashes; what is missing is left out."""
    sources = [spec.data.train, *([spec.data.eval] if spec.data.eval else [])]
    agent = spec.rollout.agent
    declarations = spec.model_dump(mode="json", include={"tools", "rewards", "env", "rollout"})
    named = [("code", str(path)) for path in project_code(declarations)]
    named += [("code", path) for path in (() if agent is None else agent.own_files)]
    targets = [tool.target for _, tool in _all_tools(spec.tools)]
    named += [("code", file) for target in targets for file in target.code_files if is_local(file)]
    named += [("data", path) for source in sources for path in (source.path, *mixture_files(source.path))]
    named += [("data", shown.path)] if (shown := spec.data.demonstrations) else []
    taught = (("data", SOLUTIONS[-1]), ("model", TEACHER[-1]))
    named += [(role, path) for role, key in taught if (path := getattr(spec.train.algorithm, key, None))]
    beside = [getattr(source, key) for source in sources for key, _ in DATA_FILES]
    named += [("data", text) for text in beside if isinstance(text, str)]
    named += [("data", file) for term in spec.rewards for file in term.data_files]
    declared = (*declared_files(spec.tools), *reward_files(spec.rewards), *env_files(spec.env))
    named += [("data", file) for _, file in declared]
    named += [("data", file) for target in targets for file in target.data_files]
    named += [("model", spec.model.path)]
    local = [(role, Path(path)) for role, path in dict.fromkeys(named) if is_local(path)]
    hashes = [(role, path, identity(path)) for role, path in local]
    return [InputFile(role, shown_path(path), sha256) for role, path, sha256 in hashes if sha256 is not None]


def is_local(path: str) -> bool:
    """Whether a resolved path names a file or folder rather than a builtin or a Hugging Face id."""
    return Path(path).is_absolute()


def _resolve_path(node: Node, text: str, faults: list[Fault], *, is_data: bool) -> str:
    if text.startswith(BUILTIN):
        try:
            builtin_path(text.removeprefix(BUILTIN))
        except RlfError as error:
            faults.append(node.fault(str(error)))
        return text
    if text.startswith("$"):
        from rlf.spec.mistaken import foreign_variable

        if (message := foreign_variable(text)) is not None:
            faults.append(node.fault(message))
            return text
    if is_data and "://" in text:
        from rlf.core.mistakes import explain

        faults += [node.fault(known[0]) for known in [explain("addresses", text, got=show(text))] if known]
        return text
    try:
        here = absolute(Path(text), node.folder)
        looks_local = is_folder_name(text) or text in (".", "..") or here.exists()
        return str(here) if looks_local or (is_data and _is_file_name(text, node.folder)) else text
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        faults.append(node.fault(f"got {show(text)}, which is not a path: {reason}. Write one."))
        return text


def _is_file_name(text: str, folder: Path) -> bool:
    """Whether a text is the path of a file, there or not, and no id of the Hub.

    It has a suffix (of letters first, unlike the `.5` of a version) or more parts than an id, or lies in a folder that
    exists, from the spec's folder or from where the command runs.
    """
    path = Path(text)
    if _SUFFIX.fullmatch(path.suffix) or len(path.parts) > _MAX_ID_PARTS:
        return True
    return len(path.parts) > 1 and any(absolute(path.parent, start).is_dir() for start in (folder, Path.cwd()))


def identity(path: Path) -> str | None:
    """Hash of a data file; of a model's folder, the small files' contents and the name, size and samples of large ones.

    Weights of many gigabytes are sampled at even distances, so that checking a spec stays instant: training changes
    all of them. None for what cannot be read: `check_inputs` says why.
    """
    try:
        if path.is_file():  # neither a pipe, which would be waited for, nor a device without an end
            stamp = stamp_file(path, MIN_BYTES)
            return hash_path(path) if stamp is None else remember(["sha256", *stamp], lambda: hash_path(path))
        files = [file for file in sorted(path.iterdir()) if file.is_file()]
        return hash_json([[file.name, *_describe_file(file)] for file in files])
    except OSError:
        return None


def _describe_file(file: Path) -> tuple[int, str]:
    size = file.stat().st_size
    if size <= _SMALL_BYTES:
        return size, hash_bytes(file.read_bytes())
    # Hash of blocks at even distances, the file's two ends among them
    blocks = []
    with file.open("rb") as opened:
        for number in range(_NUM_SAMPLES):
            opened.seek((size - _SAMPLE_BYTES) * number // (_NUM_SAMPLES - 1))
            blocks.append(opened.read(_SAMPLE_BYTES))
    return size, hash_bytes(b"".join(blocks))


# The file that a wrong path may be meant for.


def missing_file(node: Node, file: Path) -> str | None:
    """The sentence about the file that a value names; None where it is there."""
    if os.path.isfile(file) or os.path.isdir(file):  # noqa: PTH112, PTH113 - Path's own raise where they may not look
        return None
    from rlf.spec.mistaken import missing_named_file

    return missing_named_file(node, file)
