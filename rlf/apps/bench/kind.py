"""A benchmark: its options, its rows, and what plays and judges them. A kind is one file of `rlf.apps.bench.kinds`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from rlf.core import Registry
from rlf.core.errors import RlfError, RunError
from rlf.core.identity import hash_json
from rlf.core.kinds import StrictModel
from rlf.core.process import cache_folder, locked
from rlf.processes.child import run_to_end

Row = dict[str, Any]
"""One task: `id`, `prompt` (messages), `kind`, `split`, and the columns that its world reads."""


@dataclass(frozen=True, slots=True)
class Play:
    """How the rows of a benchmark are played: sections of a spec."""

    scores: tuple[str, ...]
    """Scores of the world; the first is the benchmark's own verdict."""
    world: str | None = None
    """The class that plays and judges, `module:name`; None where a section `env` says it."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Of that class."""
    env: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the section that names it."""
    rollout: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    """Of the rows, as `data` names them, beside `kind` and `id`."""
    sections: Mapping[str, Any] = field(default_factory=dict)
    """Further sections, which replace those that are made. `env` is given the rows; None: no world plays."""


class Benchmark(StrictModel, ABC):
    """A benchmark of others. Its fields are its options on the command line."""

    title: ClassVar[str]
    """What it measures, in a line."""
    licence: ClassVar[str]
    packages: ClassVar[PinnedPackages | None] = None
    """What has to be installed; None: nothing."""
    needs: ClassVar[str] = ""
    """What the user brings; empty: its data are in the package."""

    @abstractmethod
    def rows(self) -> Iterable[Row]:
        """The rows, in the benchmark's order. Of one with packages, in a process that has them."""

    @property
    @abstractmethod
    def play(self) -> Play:
        """How they are played."""

    def summary(self, rates: Mapping[str, tuple[float, int]]) -> Mapping[str, float]:
        """The benchmark's own figures, from success and number of questions by kind."""
        return {}

    def read_rows(self) -> list[Row]:
        """The rows, from wherever its package is. Raises RlfError."""
        if self.packages is None:
            return list(self.rows())
        if self.packages.version is None:
            name = BENCHMARKS.name_of(type(self))
            raise RlfError(
                f"{name}: {self.packages.name} is not installed. Run `rlf bench {name} --setup`, which installs "
                f"{self.packages.pins} into a folder of its own."
            )
        code = f"from {type(self).__module__} import {type(self).__name__} as kind; "
        code += "from rlf.apps.bench.kind import print_rows; print_rows(kind)"
        printed = self.packages.run(code, [self.model_dump_json()])
        return [json.loads(line) for line in printed.splitlines()]


BENCHMARKS: Registry[Benchmark] = Registry(
    "benchmark",
    "rlf.apps.bench.kinds",
    Benchmark,  # type: ignore[type-abstract]  # compared with, never instantiated
)


def print_rows(kind: type[Benchmark]) -> None:
    """Prints the rows of a benchmark whose options are the process's argument, one by line."""
    out, sys.stdout = sys.stdout, sys.stderr  # whatever a package prints is no row
    try:
        for row in kind.model_validate_json(sys.argv[1]).rows():
            out.write(json.dumps(row) + "\n")
    except RlfError as fault:
        out.write(json.dumps(str(fault)) + "\n")
        sys.exit(USER_FAULT)


def read_row_file(file: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl file, or of a .json file that is a list. Raises RlfError for a file without such."""
    try:
        text = file.read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines() if line.strip()] if file.suffix == ".jsonl" else None
        rows = json.loads(text) if rows is None else rows
    except (OSError, ValueError) as fault:
        raise RlfError(
            f"--data: {file}: cannot be read as rows: {fault}. Name a .jsonl file, or a .json list."
        ) from fault
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RlfError(f"--data: {file}: holds no list of rows. Name a .jsonl file, or a .json list.")
    return rows


def read_names(text: str, known: Sequence[str], groups: Mapping[str, Sequence[str]], noun: str) -> list[str]:
    """Names from a list with commas, each a known one or a group of them. Raises RlfError."""
    found: dict[str, None] = {}
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in known and name not in groups:
            raise RlfError(f"got the {noun} {name!r} (known: {', '.join([*groups, *known])}). Name one of these.")
        found |= dict.fromkeys(groups.get(name, (name,)))
    return list(found)


_LIMIT_S = 900.0
_TAIL_LINES = 8
USER_FAULT = 2
"""Exit code of a program whose last line is a fault of the user's, as JSON."""


@dataclass(frozen=True, slots=True)
class PinnedPackages:
    """What a benchmark needs installed."""

    pins: str
    """As pip takes them, with spaces: the benchmark's own package first, and nothing that they depend on."""

    @property
    def name(self) -> str:
        """Of the benchmark's own package."""
        return self.pins.partition("==")[0]

    @property
    def folder(self) -> Path:
        """Where `install` puts them; one per list of pins and per Python."""
        key = hash_json([self.pins.split(), sys.version_info[:2], sys.prefix])[:12]
        return cache_folder().absolute() / "bench" / f"{self.name}-{key}"

    @property
    def path(self) -> str | None:
        """The folder, where it is needed: None where this environment has the package itself."""
        return str(self.folder) if self.folder.is_dir() else None

    @property
    def version(self) -> str | None:
        """Of the benchmark's own package; None where it is not installed."""
        if self.path is not None:
            found = next(iter(metadata.distributions(name=self.name, path=[self.path])), None)
            return None if found is None else found.version
        try:  # by its own name: others on the index have modules of the same one
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return None

    def install(self) -> None:
        """Installs them, where they are missing. Raises RunError with pip's last words."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.folder.with_suffix(".lock")):
            if self.folder.is_dir():
                return
            made = self.folder.with_suffix(".new")
            shutil.rmtree(made, ignore_errors=True)
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
            done = run_to_end([*command, "--target", str(made), *self.pins.split()], _LIMIT_S)
            if done.returncode != 0:
                tail = "\n".join(done.stderr.splitlines()[-_TAIL_LINES:])
                raise RunError(f"{self.pins} cannot be installed; pip's last words:\n{tail}")
            made.rename(self.folder)  # whole or not there: a kill leaves no half of it

    def run(self, code: str, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        """What a program prints that is run with them. Raises RlfError with its last words."""
        first = "import sys; " + ("" if self.path is None else f"sys.path.insert(0, {self.path!r}); ")
        try:
            done = run_to_end(
                [sys.executable, "-c", first + code, *arguments], _LIMIT_S, env={**os.environ, **(env or {})}
            )
        except subprocess.TimeoutExpired as late:
            raise RlfError(f"{self.name}: its rows were not read within {_LIMIT_S:g} s.") from late
        if done.returncode == USER_FAULT and done.stdout:
            raise RlfError(json.loads(done.stdout.splitlines()[-1]))
        if done.returncode != 0:
            tail = "\n".join(done.stderr.strip().splitlines()[-_TAIL_LINES:])
            raise RlfError(f"{self.name}: its rows cannot be read; the last words:\n{tail}")
        return done.stdout
