"""The build file: the builder, what it builds, and where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from rlf.builder.kind import BuildKind
from rlf.builder.shape import Shape
from rlf.core import Fault, SpecError, hash_json
from rlf.spec.layers import interpolate
from rlf.spec.nodes import Node, plain
from rlf.spec.overrides import apply_override
from rlf.spec.reader import read_file
from rlf.spec.validate import faults_of


class BuildSettings(Shape):
    """A build file."""

    build: BuildKind
    """Who makes the tasks: `graph` without a model, `llm` with one."""
    out: str
    """Folder of the world, from the current folder on, as that of runs."""

    @property
    def sha256(self) -> str:
        """Hash of all that decides what is built: the settings but for `out`, and the files that they name."""
        return hash_json([self.model_dump(mode="json", exclude={"out"}), self.build.source_hash()])


def load_build(path: Path, overrides: Sequence[str] = ()) -> BuildSettings:
    """A build file with `key=value` overrides. Raises SpecError with its faults and their places."""
    faults: list[Fault] = []
    found = read_file(path, None, faults)
    if found is None:
        raise SpecError(faults)
    root = found[0]
    for text in overrides:
        root = apply_override(root, text, faults)
    settings = _validate_root(interpolate(root, faults), faults)
    if settings is None or faults:
        raise SpecError(faults)
    return settings


def _validate_root(root: Node, faults: list[Fault]) -> BuildSettings | None:
    try:
        return BuildSettings.model_validate(plain(root), context={"folder": root.folder})
    except ValidationError as error:
        faults += faults_of(BuildSettings, root, error.errors())
        return None
