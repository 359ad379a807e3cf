"""`load_spec`: files and overrides in, one checked spec out, or every fault at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Concatenate, Generic, ParamSpec

from rlf.core import Fault, Place, SpecError
from rlf.core.callables import forget_edited
from rlf.spec.code import literal_keys
from rlf.spec.layers import ITEM_LISTS, InputFile, Interpolation, Reading, interpolate
from rlf.spec.models import OUTSIDE, RunSpec
from rlf.spec.nodes import OVERRIDE, KeyPath, Node, deepest_node, dotted, plain, walk
from rlf.spec.overrides import apply_override, empty_tree, find_disagreements
from rlf.spec.paths import local_inputs, resolve_paths
from rlf.spec.reader import forget_env_files
from rlf.spec.validate import expand_servers, restrict_fields, validate_spec


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec whose every key is known and of the right type, and where it all came from."""

    spec: RunSpec
    files: tuple[InputFile, ...]
    """Every file that was read, and the data and model files that the spec names on this machine."""
    tree: Node
    """The merged values with their places."""
    kept: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of a spec with broken items: where those of `spec` stand in the lists as they are written."""
    broken: frozenset[KeyPath] = frozenset()
    """Keys that have faults of their own, of which `spec` holds a stand-in; of lists, those that lack items."""
    declared: tuple[KeyPath, ...] | None = None
    """The keys that `spec` is restricted to; None: all."""

    @property
    def origins(self) -> dict[str, str]:
        """Where each value came from, by dotted key: `specs/search.yaml:3:9` or `override`; a default is absent."""
        return {dotted(path): node.origin for path, node in walk(self.tree) if path}

    @property
    def interpolated(self) -> tuple[Interpolation, ...]:
        """The values that were filled in from `${...}` where credentials and addresses are: tools, env, rewards ...

        Everywhere else such a value is a setting like any other, stored and hashed as it is.
        """
        filled = [(path, node.written) for path, node in walk(self.tree) if node.written is not None]
        return tuple(Interpolation(path, text) for path, text in filled if path[0] in (*ITEM_LISTS, "env", *OUTSIDE))

    def is_sound(self, *keys: KeyPath) -> bool:
        """Whether no key, nor anything around or below it, has a fault; `tools` and `rewards` are whole lists."""
        return not any(_is_affected(key, path) for key in keys for path in self.broken)

    def only(self, keys: tuple[KeyPath, ...]) -> LoadedSpec:
        """The same with nothing in `spec` but some keys: reading another one is an error in the check that does."""
        return replace(self, spec=restrict_fields(self.spec, keys), declared=keys)

    def value(self, path: KeyPath) -> Any:
        """The value of the files and overrides at a path; None where they say nothing."""
        declared = self.declared is None or any(path[: len(key)] == key for key in self.declared)
        assert declared, f"a check reads {dotted(path)}, which it does not declare"
        node, depth = deepest_node(self.tree, self._written_path(path))
        return plain(node) if depth == len(path) else None

    def fault(self, path: KeyPath, message: str) -> Fault:
        """A fault of the value at a path, or of the nearest mapping around it where the value is a default."""
        path = self._written_path(path)
        node, depth = deepest_node(self.tree, path)
        if depth == len(path):
            return node.fault(message)
        from_file = depth > 0 and node.path == ()  # the place is where the spec names the file, so is the path
        return Fault(node.key_place, dotted(path if from_file else (*node.path, *path[depth:])), message)

    def item_fault(self, path: KeyPath, message: str) -> Fault:
        """A fault of a list's item as a member of the list: where the spec says it, not in the file it names."""
        path = self._written_path(path)
        node, depth = deepest_node(self.tree, path)
        assert depth == len(path), f"no item at {path}"
        return Fault(node.key_place, dotted(path), message)

    def _written_path(self, path: KeyPath) -> KeyPath:
        """The path of a value as it is written, for one in `spec`."""
        match path:
            case (str() as key, int() as place, *rest) if key in self.kept:
                return (key, self.kept[key][place], *rest)
        return path


def _is_affected(key: KeyPath, broken: KeyPath) -> bool:
    """Whether a declared key cannot be read for a broken one. Items that stand in a list are sound."""
    if broken and broken[0] in ITEM_LISTS:
        return key == broken
    return all(one == other for one, other in zip(key, broken, strict=False))


class PartlyWrong(SpecError):
    """A spec with faults, and what of it stands by itself, so that the rest of it can be looked at too."""

    def __init__(self, faults: Sequence[Fault], part: LoadedSpec) -> None:
        super().__init__(faults)
        self.part = part


_AS_SAVED: Mapping[Path, str] = MappingProxyType({})


def load_spec(
    files: Sequence[Path], overrides: Sequence[str] = (), texts: Mapping[Path, str] = _AS_SAVED
) -> LoadedSpec:
    """Reads, layers and checks a spec.

    Args:
        files: spec files; later ones are laid over earlier ones. Of none, the overrides are the whole spec.
        overrides: `key=value`, `+key=value` and `~key`, applied in order after all files.
        texts: what is read in place of files, by absolute path: an editor's, before it saves them.

    Raises:
        SpecError: with every fault of the spec and of the files it names.
    """
    # A process may check many times (an editor, the page, a sweep): edited code and variables are read again each time.
    forget_env_files()
    forget_edited()
    reading = Reading(texts)
    # The order is the contract. Layers come first, since every later pass looks at one tree; names of other libraries
    # are replaced within each layer, so that two names of one value meet before they are merged.
    root = reading.layers(files) if files else empty_tree()
    if root is None:
        raise SpecError(reading.faults)
    # Overrides name keys of the merged tree, and may bring items that name files: these are spelled out as a file's
    # are.
    reading.faults += find_disagreements(overrides)
    for text in overrides:
        root = reading.spell_out(apply_override(root, text, reading.faults))
    # References point anywhere in the tree, overrides included; paths, keys and servers are looked at as filled in.
    root = interpolate(root, reading.faults)
    # Before servers are asked for their tools, and before pydantic: a model no longer knows which file named a value.
    root = resolve_paths(root, reading.faults)
    # Looks at what was written, which interpolation keeps beside each value that it fills in.
    reading.faults += literal_keys(root)
    root = expand_servers(root, reading.faults)
    # Last, so that no pass sees a value that an earlier one would have changed.
    spec = validate_spec(root, reading.faults)
    if spec is None or reading.faults:
        from rlf.spec.parts import valid_part

        faults = _first_at_each_place(reading.faults)
        specs = {OVERRIDE, *(file.path for file in reading.files.values() if file.role == "spec")}
        part = valid_part(root, {key for fault in faults if fault.place.file in specs and (key := _fault_key(fault))})
        if part is None:
            raise SpecError(faults)
        raise PartlyWrong(faults, LoadedSpec(part.spec, tuple(reading.files.values()), root, part.kept, part.broken))
    return LoadedSpec(spec, (*reading.files.values(), *local_inputs(spec)), root)


def change_spec(loaded: LoadedSpec, overrides: Sequence[str]) -> LoadedSpec:
    """A loaded spec with more overrides, its files not read again. Raises SpecError where one does not apply."""
    faults, root = list[Fault](), loaded.tree
    for text in overrides:
        root = apply_override(root, text, faults)
    spec = validate_spec(root, faults)
    if spec is None or faults:
        raise SpecError(faults)
    return replace(loaded, spec=spec, tree=root)


def _fault_key(fault: Fault) -> KeyPath:
    """The key that a fault of the spec is about; of an override that is no path, the one that it sets."""
    text = fault.path.partition("=")[0].lstrip("+~")
    return tuple(int(key) if key.isdecimal() else key for key in re.split(r"[.\[\]]+", text) if key)


def _first_at_each_place(faults: Sequence[Fault]) -> list[Fault]:
    """Without what follows from a fault found earlier: a value that could not be read is also of the wrong type."""
    found: dict[tuple[Place, str], Fault] = {}
    for fault in faults:
        found.setdefault((fault.place, fault.path), fault)
    return list(found.values())


# Checks between the keys of a spec: each declares the keys it reads, sees no others, and runs where these are sound.
#
# So what a fault hides is known from the declarations, and an error in a check is a traceback on every spec.

Rest = ParamSpec("Rest")
Finder = Callable[Concatenate[LoadedSpec, Rest], Iterable[Fault]]


@dataclass(frozen=True, slots=True)
class SpecCheck(Generic[Rest]):
    """A function from a loaded spec to faults, with the keys that it reads."""

    find: Finder[Rest]
    keys: tuple[KeyPath, ...]

    def __call__(self, loaded: LoadedSpec, *args: Rest.args, **kwargs: Rest.kwargs) -> Iterator[Fault]:
        """The faults; none where a key that the check reads has a fault of its own."""
        if loaded.is_sound(*self.keys):
            yield from self.find(loaded.only(self.keys), *args, **kwargs)


def reads(*keys: str) -> Callable[[Finder[Rest]], SpecCheck[Rest]]:
    """Declares the keys of a check, e.g. `@reads("train.steps", "tools", "rewards[]")`.

    `tools` and `rewards` are the whole list; `tools[]` and `rewards[]` are its items without those that have faults.
    """
    paths = tuple(tuple(re.split(r"\.|(?=\[])", key)) for key in keys)
    return lambda find: SpecCheck(find, paths)
