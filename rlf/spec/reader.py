"""Reading one YAML file into nodes, hostile files included.

YAML 1.2's core schema: `yes`, `on` and dates are text, `1e-5` is a number. Size, depth and the expansion of
anchors are bounded, so that no file can hang or fill the compiler.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

from rlf.core import Fault, Place
from rlf.core.files import shown_path, why_not_read
from rlf.core.redact import clean
from rlf.core.text import find_half, join_halves
from rlf.core.yaml_text import BOOL, FLOAT, INT, MERGE, NULL, PLAIN, STR, TAG, CoreLoader, read_integer
from rlf.spec.nodes import KeyPath, Node, Scalar, dotted

MAX_BYTES = 1_000_000
# Aliases can make a small file grow exponentially ("billion laughs"): nodes are counted after they are expanded.
MAX_NODES = 50_000
# Well below Python's recursion limit, which YAML's composer and the walks over nodes would hit.
MAX_DEPTH = 60


@dataclass(slots=True)
class _Reader:
    """Converts one document from YAML's nodes to ours."""

    file: str
    folder: Path
    faults: list[Fault]
    inside: KeyPath = ()
    """Keys that lead to the document; an override's own."""
    fixed: Place | None = None
    """The place of everything in a text that is no file."""
    num_nodes: int = 0

    def place(self, mark: yaml.Mark) -> Place:
        return self.fixed or Place(self.file, mark.line + 1, mark.column + 1)

    def convert(self, node: yaml.Node, key_place: Place, path: KeyPath) -> Node:
        self.num_nodes += 1
        place = self.place(node.start_mark)
        if self.num_nodes > MAX_NODES or len(path) - len(self.inside) > MAX_DEPTH:
            limit = f"{MAX_NODES:,} values" if self.num_nodes > MAX_NODES else f"{MAX_DEPTH} levels"
            raise _TooLarge(Fault(place, "", f"the document grows beyond {limit}. Check its anchors and nesting."))
        return Node(self._read_value(node, place, path), place, key_place, path, self.folder)

    def _read_value(self, node: yaml.Node, place: Place, path: KeyPath) -> dict[str, Node] | list[Node] | Scalar:
        try:
            if isinstance(node, yaml.ScalarNode):
                return _parse_scalar(node.tag, node.value)
            _check_tag(node.tag, (TAG + "map", TAG + "seq"))
        except _BadScalar as bad:
            self.faults.append(Fault(place, dotted(path), str(bad)))
            return None
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        return [self.convert(item, self.place(item.start_mark), (*path, i)) for i, item in enumerate(node.value)]

    def _read_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key_node, value_node in node.value:
            key, place = self._read_key(key_node, path), self.place(key_node.start_mark)
            if key is None:
                continue
            if key in entries:
                first = entries[key].key_place
                message = f"key {key!r} appears twice, first on line {first.line}; a key is written once. Remove one."
                self.faults.append(Fault(place, dotted((*path, key)), message))
                continue  # the first holds: of the last, keys would be missing that the user has written
            entries[key] = self.convert(value_node, place, (*path, key))
        return entries

    def _read_key(self, node: yaml.Node, path: KeyPath) -> str | None:
        place = self.place(node.start_mark)
        if node.tag == MERGE:
            message = "got a merge key `<<`; it is not part of YAML 1.2. Write the keys out, or use `extends`."
        elif not isinstance(node, yaml.ScalarNode):
            message = "got a list or mapping as a key; keys are text. Write a name."
        elif node.tag != STR and node.value != "null":  # the name of a gate of build files
            message = (
                f'got the key {node.value}, which YAML does not read as text; keys are text. Write "{node.value}".'
            )
        elif (half := find_half(node.value)) is not None:
            message = f"got {half} in a key, half of a character (a surrogate). Write both halves, or remove it."
        else:
            return join_halves(node.value)
        self.faults.append(Fault(place, dotted(path), message))
        return None


class _TooLarge(Exception):
    """Carries the one fault that ends the reading of a document."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _BadScalar(ValueError):
    """A scalar that is YAML but no value of ours."""


def _parse_scalar(tag: str, text: str) -> Scalar:
    if tag in PLAIN and not re.fullmatch(PLAIN[tag], text):
        _check_tag(tag, (STR,))
    if tag == NULL:
        return None
    if tag == BOOL:
        return text.lower() == "true"
    if tag == INT:
        if len(text) > 40:
            raise _BadScalar(f"got a number of {len(text)} digits; at most 40 are read. Quote it if it is text.")
        return read_integer(text)
    if tag == FLOAT:
        value = math.inf if "n" in text.lower() else float(text)
        if not math.isfinite(value):
            raise _BadScalar(f"got {text}; numbers are finite. Write a number, or null where that is allowed.")
        return value
    _check_tag(tag, (STR, MERGE))
    # A text whose escapes are whole characters: JSON writes those beyond U+FFFF as two halves
    half = find_half(text)
    if half is not None:
        raise _BadScalar(f"got {half}, half of a character (a surrogate). Write both halves, or remove it.")
    return join_halves(text)


def _check_tag(tag: str, known: tuple[str, ...]) -> None:
    if tag not in known:
        fix = "Remove it; a file is named by its path alone."
        raise _BadScalar(f"got the tag {tag.replace(TAG, '!!')}; tags other than !!str are not read. {fix}")


def read_file(
    path: Path, named_by: Node | None, faults: list[Fault], unsaved: str | None = None
) -> tuple[Node, bytes] | None:
    """The mapping in a file and the file's bytes; None, with faults added, where it cannot be read.

    The place of a fault of the file as a whole is the value that names the file, if any does.

    Args:
        unsaved: the text to take in place of the file's.
    """
    shown = clean(shown_path(path))
    if find_half(str(path.absolute())) is not None:
        words = "this path is not UTF-8, and plans and lineage hold Unicode. Rename the file or its folder."
        faults.append(file_fault(shown, named_by, words))
        return None
    try:
        data = _read_bytes(path, named_by) if unsaved is None else clean(unsaved).encode()
        text = data.decode("utf-8-sig")
    except _Unread as unread:
        faults.append(file_fault(shown, named_by, str(unread)))
        return None
    except UnicodeDecodeError as error:
        from rlf.core.mistakes import not_utf8

        faults.append(file_fault(shown, named_by, not_utf8(error.object, "A spec")))
        return None
    if path.suffix in (".py", ".ipynb", ".jsonl"):
        from rlf.core.mistakes import known

        faults.append(file_fault(shown, named_by, known("no specs")[path.suffix].format(shown)))
        return None
    if path.suffix == ".json":
        text = text.replace("\t", " ")  # JSON is YAML but for tabs between its tokens; within a string it has none
    root = _parse_text(text, _Reader(shown, path.parent, faults))
    if root is None or isinstance(root.value, dict):
        return None if root is None else (root, data)
    what = "nothing" if root.value is None else "a list" if isinstance(root.value, list) else "a single value"
    form = "" if path.suffix in (".yaml", ".yml", ".json", "") else f", as YAML has it; a {path.suffix} file is none"
    from rlf.spec.mistaken import openai_list

    fix = openai_list(root, shown) or "Write `key: value` lines."
    faults.append(root.fault(f"the file holds {what}; expected a mapping{form}. {fix}"))
    return None


def file_fault(shown: str, named_by: Node | None, message: str) -> Fault:
    """A fault of a file as a whole."""
    return Fault(Place(shown), "", message) if named_by is None else named_by.fault(f"{shown}: {message}")


def read_override(text: str, place: Place, path: KeyPath, folder: Path, faults: list[Fault]) -> Node | None:
    """The YAML value of an override, all of it at one place."""
    return _parse_text(text, _Reader(place.file, folder, faults, path, place))


class _Unread(Exception):
    """Why a file's bytes were not taken."""


def _read_bytes(path: Path, named_by: Node | None) -> bytes:
    try:
        if path.is_dir():
            files = ", ".join(sorted(str(f.relative_to(path)) for f in [*path.glob("*.y*")] or path.glob("*/*.y*"))[:5])
            raise _Unread(f"this is a folder; expected a YAML file. Name a file in it{files and ': '}{files}.")
        if barred := why_not_read(path):
            raise _Unread(barred)
        if (size := path.stat().st_size) > MAX_BYTES:
            raise _Unread(f"the file has {size:,} bytes; at most {MAX_BYTES:,} are read. Move data to data files.")
        return path.read_bytes()
    except FileNotFoundError:
        from rlf.spec.mistaken import missing_spec_file

        raise _Unread(missing_spec_file(path, named_by)) from None
    except OSError as error:
        raise _Unread(f"cannot be read: {error.strerror}. Check the path and its permissions.") from error
    except ValueError as error:
        raise _Unread(f"this is not a path: {error}. Write one.") from error


def _parse_text(text: str, reader: _Reader) -> Node | None:
    try:
        document = _compose(text)
        if document is None:
            document = yaml.ScalarNode(NULL, "", yaml.Mark("", 0, 0, 0, None, 0))
        start = reader.place(document.start_mark)
        return reader.convert(document, start, reader.inside)
    except _TooLarge as large:
        reader.faults.append(large.fault)
    except RecursionError:
        reader.faults.append(Fault(reader.fixed or Place(reader.file), "", "nested too deeply to be read. Flatten it."))
    except yaml.YAMLError as error:
        from rlf.spec.mistaken import syntax_fault

        reader.faults.append(syntax_fault(error, reader.place, dotted(reader.inside), text))
    return None


@lru_cache(maxsize=64)  # a process that lives on, such as the page's, reads the same files again and again
def _compose(text: str) -> yaml.Node | None:
    """YAML's own nodes of a document, which nobody changes."""
    loader = CoreLoader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


# `.env` next to a spec: variables for `${oc.env:NAME}` and for the user's own code. Real variables win.
#
# The values become part of this process's environment, as if the user had exported them, and are recorded nowhere: not
# in the list of a run's files, not in messages. Invariant: what one spec's files set is gone when the next is loaded.

_NAME = ".env"
# `export` in front is allowed, since shells read these files too.
_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*)")
# Single quotes hold text as it is, double quotes have escapes; a comment may follow either.
_QUOTED = re.compile(r"""(?:'(?P<plain>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)")\s*(?:#.*)?""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
# Only the name: a default after a comma does not change which variable is read.
_MENTION = re.compile(r"\$\{\s*oc\.env:\s*([A-Za-z_][A-Za-z0-9_]*)")

_taken: dict[str, str] = {}
"""Variables of this process from `.env` files."""


def forget_env_files() -> None:
    """Takes out of the environment what `.env` files brought in, unless someone changed it since."""
    for name, value in _taken.items():
        if os.environ.get(name) == value:
            del os.environ[name]
    _taken.clear()


def take_env_file(folder: Path, faults: list[Fault]) -> None:
    """Adds the variables of a folder's `.env` that the environment does not have yet."""
    for name, value in _read_variables(folder / _NAME, faults):
        if name not in os.environ:
            os.environ[name] = _taken[name] = value


def read_env_files(folders: Iterable[Path]) -> dict[str, str]:
    """Variables of the `.env` files of folders, as far as they can be read; the environment stays as it is."""
    return {name: value for folder in folders for name, value in _read_variables(folder / _NAME, [])}


def mentioned(texts: Iterable[str]) -> set[str]:
    """The environment variables that texts with `${oc.env:NAME}` speak of."""
    return {name for text in texts for name in _MENTION.findall(text)}


def _read_variables(path: Path, faults: list[Fault]) -> Iterator[tuple[str, str]]:
    shown = shown_path(path)
    try:
        if not path.is_file():
            return
        if path.stat().st_size > MAX_BYTES:
            faults.append(Fault(Place(shown), "", f"the file has over {MAX_BYTES:,} bytes. Keep NAME=value lines."))
            return
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        faults.append(Fault(Place(shown), "", "this is not UTF-8; a .env file is UTF-8 text. Save it as UTF-8."))
        return
    except OSError as error:
        faults.append(Fault(Place(shown), "", f"cannot be read: {error.strerror}. Check its permissions."))
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield from _read_pair(line.strip(), Place(shown, number, 1), faults)


def _read_pair(line: str, place: Place, faults: list[Fault]) -> Iterator[tuple[str, str]]:
    """One line's variable. The messages show nothing of the line: it may be a secret."""
    found = _LINE.fullmatch(line)
    if found is None or "\0" in line:
        faults.append(
            Fault(place, "", "this is not a NAME=value line. Write e.g. SEARCH_KEY=..., or # before a comment.")
        )
        return
    value = found["value"]
    if value[:1] not in ("'", '"'):
        yield found["name"], re.split(r"\s#", value, maxsplit=1)[0].strip()
        return
    quoted = _QUOTED.fullmatch(value)
    if quoted is None:
        faults.append(Fault(place, found["name"], "the quote is not closed on this line. Close it, or remove it."))
    elif quoted["plain"] is not None:
        yield found["name"], quoted["plain"]
    else:
        yield found["name"], re.sub(r"\\(.)", lambda at: _ESCAPES.get(at[1], at[1]), quoted["escaped"])
